"""Peers: a search of 36 and of 192 trials of the demo, as programs that their users would write.

A program is a file of this folder, timed from its command to its end, with the processor seconds of
all its processes; ours is an experiment file and the command ``batchscale sweep``. All train the
same trials (metaparameters, initial weights, order of batches) on two cores, one thread each, and
stop a trial at its target, except that the vmapped sweep trains a batch size until its last trial
has ended. Lines are those of code: no comments, no docstrings, no empty ones. What is given to all
(``problem.py``: data, model, batches) is in no count.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import tokenize
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.peers.problem import EACH

FOLDER = Path(__file__).parent
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "ours": ("ours.yaml",),
    "a bare PyTorch loop": ("loop.py",),
    "Optuna with its median pruner": ("optuna_pruner.py",),
    "a vmapped sweep by hand": ("vmapped.py",),
    "Ray Tune, reused actors": ("ray_tune.py", "reused"),
    "Ray Tune as it comes": ("ray_tune.py",),
}
"""File and arguments."""
SEARCHES: Mapping[int, tuple[str, ...]] = {
    12: tuple(PROGRAMS),
    64: tuple(name for name in PROGRAMS if name != "Ray Tune as it comes"),
}
"""Trials of each of the three batch sizes, and who trains so many: a process a trial takes long."""

_MARK = "BATCHSCALE_PEER"
_TICKS = os.sysconf("SC_CLK_TCK")


class Ran(NamedTuple):
    """What a program took, and found."""

    seconds: float
    processor: float
    """Seconds of all its processes."""
    steps: int
    """Steps trained, of all models."""
    minima: dict[str, int]
    """The least steps to the target at each batch size."""


def run(name: str, each: int) -> Ran:
    """Time a program; ``each``: trials of a batch size."""
    file, *arguments = PROGRAMS[name]
    if file.endswith(".py"):
        command = [sys.executable, "-m", f"{__name__}.{file.removesuffix('.py')}", *arguments]
        seconds, processor, text = timed(command, {EACH: str(each)})
        printed = json.loads(text.strip().splitlines()[-1])
        return Ran(seconds, processor, printed["steps"], printed["minima"])
    from results import open as open_results

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "batchscale", "sweep", str(FOLDER / file)]
        seconds, processor, _ = timed([*command, "--set", f"trials={each}", "--results", folder])
        trials = open_results(folder).trials
    least = trials.groupby("batch_size").steps_to_target.min().dropna()
    minima = {str(size): int(steps) for size, steps in least.items()}
    return Ran(seconds, processor, int(trials["steps_run"].sum()), minima)


def timed(
    command: list[str], environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[float, float, str]:
    """Wall seconds, processor seconds of all processes that it started, and what it printed."""
    mark = f"{_MARK}={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with tempfile.TemporaryFile("w+") as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment, name: value},
        )
        ticks: dict[str, int] = {}
        while process.poll() is None:
            ticks |= _ticks(mark.encode())
            time.sleep(0.2)
        seconds = time.perf_counter() - began
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
        out.seek(0)
        return seconds, sum(ticks.values()) / _TICKS, out.read()


def _ticks(mark: bytes) -> dict[str, int]:
    """Clock ticks of every process that has ``mark`` in its environment."""
    ticks = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks[f"{folder.name} {fields[19]}"] = int(fields[11]) + int(fields[12])
    return ticks


def lines(file: Path) -> int:
    """Lines of code of a Python or YAML file."""
    text = file.read_text()
    if file.suffix != ".py":
        return sum(bool(line.partition("#")[0].strip()) for line in text.splitlines())
    texts = [
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and ast.get_docstring(node) is not None
    ]
    said = {row for node in texts for row in range(node.lineno, (node.end_lineno or 0) + 1)}
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    code = {
        row
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (*silent, tokenize.ENDMARKER)
        for row in range(token.start[0], token.end[0] + 1)
    }
    return len(code - said)


def rows(measure: Callable[[str, int], Ran] = run) -> list[dict[str, object]]:
    """One row a program, for the table in docs/."""
    table = []
    for each, names in SEARCHES.items():
        ran: dict[str, Ran] = {}
        for name in names:
            ran[name] = measure(name, each)
            table.append(row(name, 3 * each, ran[name], ran["ours"]))
            print(table[-1], flush=True)
    return table


def row(name: str, trials: int, ran: Ran, ours: Ran) -> dict[str, object]:
    """What is said of a program."""
    count = lines(FOLDER / PROGRAMS[name][0])
    same = "the same minima" if ran.minima == ours.minima else f"other minima, {ran.minima}"
    return {
        "what": f"{name}, {trials} trials of the demo: {count} lines",
        "measured": f"{ran.seconds:.1f} s, {ran.seconds / ours.seconds:.2f}× ours; "
        f"{ran.processor:.0f} s of processors; {ran.steps:,} steps trained, "
        f"{ran.steps / ran.seconds:,.0f} models · steps/s; {'—' if ran is ours else same}",
        "wanted": "" if ran is ours else "the same minima",
    }
