"""The fenced blocks of a page of documentation, and how each kind is tried."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command

from batchscale.cli import app

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    """The blocks of a page of the repository, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(*match.groups()) for match in _FENCE.finditer(text)]


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
        parse_ours(shlex.split(words[words.index("--wrap") + 1]))
    else:
        assert words[:2] == ["pip", "install"], line


def demo_commands() -> Iterator[list[str]]:
    """What ``make demo`` runs once everything is installed."""
    import subprocess

    done = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    program = ".venv/bin/batchscale "  # the lines before are the install's, where it is out of date
    for line in done.stdout.splitlines():
        if line.startswith(program):
            yield shlex.split(line.removeprefix(program))
