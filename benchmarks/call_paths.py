"""``python -m benchmarks.call_paths``: how many of our functions and files a command passes.

Each command runs as it is typed, in a process of its own, under ``sys.setprofile``. Counted are the
distinct functions of our packages that its main thread calls, and their files;
*entered* are those of them that are called from another file: the jumps of a reader who follows the
command. Code that runs only while a module is imported does not count; lambdas and comprehensions
belong to their function. *deepest* is the largest number of our functions on the stack at once.
``sweep`` is counted up to the call that trains the first step, and its stack is the one there.
``-v`` lists the functions, file by file.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("batchscale", "workloads", "experiments", "results", "analysis")
ROOT = Path(__file__).parent.parent
WHERE = "source = 'zhang_2024'"
COMMANDS = {
    "sweep": [
        "sweep", "digits-small", "--address", "none", "--set", "grid.batch_size=[64]",
        "--set", "grid.optimizer=[sgd]", "--set", "trials=4", "--set", "budget=2 steps",
        "--set", "stop_at_target=false",
    ],
    "regimes": ["regimes", "published", "--where", WHERE],
    "plot steps": ["plot", "steps", "published", "--where", WHERE, "--output", "steps.png"],
}  # fmt: skip


@dataclass
class CallPath:
    """Collects what is called; ``with`` it set as this thread's profiler."""

    to_the_first_step: bool = False
    """Stop at the training loop's first call of an engine's ``advance``."""
    functions: dict[CodeType, str] = field(default_factory=dict)
    """The functions called, with their files."""
    entered: set[CodeType] = field(default_factory=set)
    """The functions called from another file."""
    stack: list[str] = field(default_factory=list)
    """Our functions that were on the stack where it was deepest, or at the first step."""
    _importing: int = 0
    _files: dict[str, str | None] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or (file := self._file(code)) is None:
            return
        if code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing and not code.co_name.startswith("<"):
            self.functions.setdefault(code, file)
            stack = self._stack(frame)
            caller = stack[-2].partition(":")[0] if len(stack) > 1 else ""
            if caller != file:
                self.entered.add(code)
            # Earlier trial runs of an engine on a model are not training.
            end = self.to_the_first_step and code.co_name == "advance" and "/training/" in caller
            if end or len(stack) > len(self.stack):
                self.stack = stack
            if end:
                sys.setprofile(None)

    @property
    def files(self) -> set[str]:
        return set(self.functions.values())

    def _file(self, code: CodeType) -> str | None:
        """The path of its file below the project; ``None`` for code of others."""
        if code.co_filename not in self._files:
            path = Path(code.co_filename)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            self._files[code.co_filename] = path.relative_to(ROOT).as_posix() if ours else None
        return self._files[code.co_filename]

    def _stack(self, frame: FrameType | None) -> list[str]:
        calls = []
        while frame is not None:
            file = self._file(frame.f_code)
            if file is not None and not frame.f_code.co_name.startswith("<"):
                calls.append(f"{file}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        return calls[::-1]


def trace(arguments: Sequence[str]) -> CallPath:
    """Run a command in this process, in a new folder, and count what it calls."""
    from batchscale.cli import main

    path = CallPath(to_the_first_step=arguments[0] == "sweep")
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        said = io.StringIO()
        try:
            with redirect_stdout(said), redirect_stderr(said):
                sys.setprofile(path)
                try:
                    main(list(arguments))
                finally:
                    sys.setprofile(None)
        except SystemExit as end:
            if end.code:
                raise SystemExit(f"status {end.code} of {arguments}:\n{said.getvalue()}") from None
        finally:
            os.chdir(before)
    return path


def _report(name: str, verbose: bool) -> None:
    path = trace(COMMANDS[name])
    deep = {call.partition(":")[0] for call in path.stack}
    called = (len(path.functions), len(path.entered), len(path.files))
    numbers = (*called, len(path.stack), len(deep))
    print(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    if verbose:
        print("\nThe stack:", *path.stack, sep="\n  ")
        for file in sorted(path.files):
            calls = sorted(code.co_qualname for code, at in path.functions.items() if at == file)
            print(f"{file} ({len(calls)}): {', '.join(calls)}")


def main() -> None:
    """Print the table, a process for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    if options.command:
        _report(options.command, options.verbose)
        return
    print("| command | functions called | entered | files | deepest stack | its files |")
    print("|---|---|---|---|---|---|", flush=True)
    verbose = ["-v"] if options.verbose else []
    for name in COMMANDS:
        command = [sys.executable, "-m", "benchmarks.call_paths", name, *verbose]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
