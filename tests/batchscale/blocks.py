"""The fenced blocks of a page of documentation, and how each kind is tried."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import yaml
from typer.main import get_command

from batchscale.cli.app import app
from batchscale.output import display
from experiments.scheduling import messages
from tests.batchscale.conftest import Answer, Command

ROOT = Path(__file__).resolve().parents[2]
NO_RAY = ("--address", "none")
_FENCE = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^(?:[-*]|\d+\.) .*(?:\n {2,}\S.*)*", re.MULTILINE)
"""An item of a list, on one line or several."""
_COMMAND = re.compile(r"`(batchscale [^`]+)`")


@dataclass(frozen=True)
class Block:
    """``language`` and ``title`` are of the line that opens it."""

    language: str
    title: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]


def blocks(page: str) -> list[Block]:
    """The blocks of a page of the repository, in order, and the commands in its lists: each is a
    block of its own."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [(match.start(), Block(*match.groups())) for match in _FENCE.finditer(text)]
    for item in _ITEM.finditer(_FENCE.sub(lambda fence: " " * len(fence[0]), text)):
        commands = (" ".join(command.split()) for command in _COMMAND.findall(item[0]))
        found += [(item.start(), Block("sh", "", f"{command}\n")) for command in commands]
    return [block for _, block in sorted(found, key=lambda pair: pair[0])]


def run_page(page: str, command: Command, here: Path, *where: str) -> list[str]:
    """Run the page's blocks in order, sweeps at ``where``; the commands that were run.

    A block with a file's name is written to that file. ``sh interrupted`` gets a Ctrl-C at its
    first finished trial; ``sh cloud`` is not run here, `parse_cloud` reads it.
    """
    ran = []
    scope: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language in ("python", "yaml", "csv") and block.title:
            (here / block.title).write_text(block.text)
        elif block.language == "python":
            run_python(block.text, page, scope)
        elif block.language == "sh" and block.title != "cloud":
            for line in block.lines:
                if line.startswith("make "):
                    made_by_make(line)
                else:
                    _ran(line, block.title, command, where)
                    ran.append(line)
    return ran


def run_python(text: str, name: str, scope: dict[str, Any]) -> None:
    """Run a program of a page in ``scope``, and close its figures."""
    exec(compile(text, name, "exec"), scope)
    plt.close("all")


def made_by_make(line: str) -> None:
    """A ``make`` command: a target that ``make help`` lists, or the install that all begin with."""
    (target,) = line.removeprefix("make ").split()
    said = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert target == "install" or f"make {target} " in said, line


def _ran(line: str, title: str, command: Command, where: tuple[str, ...]) -> None:
    assert line.startswith("batchscale "), line
    words = shlex.split(line)[1:]
    words += where if words[0] == "sweep" else ()
    if title == "interrupted":
        answer = _interrupted(command, words)
        assert "interrupted: give the same command again to continue" in answer.err
    else:
        answer = command(*words)
    assert answer.status == (130 if title == "interrupted" else 0), f"{line}\n{answer.err}"
    assert "Traceback" not in answer.err


def _interrupted(command: Command, words: list[str]) -> Answer:
    """The command with a real SIGINT when its first trial has finished."""
    told: list[object] = []
    shown = display.Display.__call__

    def once(self: display.Display, event: messages.Event) -> None:
        shown(self, event)
        if isinstance(event, messages.Ended) and not told:
            told.append(event)
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display.Display, "__call__", once)
        answer = command(*words)
    assert told
    return answer


def parse_ours(words: list[str]) -> None:
    """A ``batchscale`` command that is read, not run: wrong usage raises."""
    group: Any = get_command(app)
    name, *rest = words[1:]
    group.commands[name].make_context(name, rest)


def parse_rays(words: list[str]) -> None:
    """A ``ray`` command, read by Ray's own command line; what it would run is read too."""
    from ray.scripts.scripts import cli

    entry = words[words.index("--") + 1 :] if "--" in words else []
    found: Any = cli
    rest = words[1:]
    while hasattr(found, "commands"):
        found, rest = found.commands[rest[0]], rest[1:]
    found.make_context(found.name, list(rest))
    if entry:
        parse_ours(entry)


def parse_cloud(line: str) -> None:
    """A command for a cluster: by the command line of whatever it starts with."""
    words = shlex.split(line)
    if words[0] == "ray":
        parse_rays(words)
    elif words[0] == "batchscale":
        parse_ours(words)
    elif words[0] == "sbatch":
        script = next(word for word in words[1:] if word.endswith(".sh"))
        # The script's own test runs it; here are its two arguments.
        assert len(words) == words.index(script) + 3, line
        named_files([script])
    elif words[0] in ("docker", "kubectl", "aws"):
        named_files(words)
    else:
        assert words[:2] == ["pip", "install"], line


def named_files(words: list[str]) -> None:
    """The files of the repository that a command names are there; JSON and YAML can be read."""
    for word in words:
        name = word.removeprefix("file://").removeprefix("--from-file=")
        if not name.startswith("docs/"):
            assert not word.startswith("file://"), word
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".json"):
            json.loads(text)
        elif name.endswith(".yaml"):
            yaml.safe_load(text)


def demo_commands() -> Iterator[list[str]]:
    """What ``make demo`` runs once everything is installed."""
    done = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    program = ".venv/bin/batchscale "  # the lines before are the install's, where it is out of date
    for line in done.stdout.splitlines():
        if line.startswith(program):
            yield shlex.split(line.removeprefix(program))
