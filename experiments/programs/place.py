"""Where programs can be trained so far, and the script that starts a trial's program again."""

from __future__ import annotations

import shlex
from pathlib import Path

from experiments.errors import ExperimentError

FOLDER, SCRIPT = "programs", "command.sh"
"""Of the results; and in the folder of a trial below it."""


def check_place(address: str, results: object) -> None:
    """
    Raises:
        ExperimentError: not in this process, or results that are no local folder.
    """
    if address != "none":
        message = "a program is trained without Ray so far"
        raise ExperimentError(message, hint="--address none")
    if "://" in str(getattr(results, "root", results)):
        message = "the trials of a program have folders, and these results are no local folder"
        raise ExperimentError(message, hint="--results DIR")


def script_of(root: str, trial: str) -> str:
    """The command that starts the program of a trial again, by itself."""
    return f"sh {shlex.quote(str(Path(root) / FOLDER / trial / SCRIPT))}"


def write_script(folder: Path, work: str | None, command: list[str]) -> None:
    """Write it into the folder of a trial."""
    lines = [f"cd {shlex.quote(str(Path(work or '.').absolute()))}", f"exec {shlex.join(command)}"]
    (folder / SCRIPT).write_text("\n".join(lines) + "\n", encoding="utf-8")
