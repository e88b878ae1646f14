"""Where the trials of programs have their folders, and the script that starts one again."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pyarrow, which messages of errors do not wait for
    from results.storage.location import Location

FOLDER, SCRIPT = "programs", "command.sh"
"""Of the results; and in the folder of a trial below it."""


def folder_of_trials(location: Location, *, reached: bool) -> str:
    """The folder of all trials of programs of a results folder.

    Args:
        reached: whether this machine reaches a local results folder. It need not in a cluster:
            then, and for an object store, it is a temporary one of this machine, and a trial goes
            on only where it has run.
    """
    if location.local and reached:
        return str(Path(location.path) / FOLDER)
    name = f"batchscale-{FOLDER}-{os.getuid()}-{location.dataset}"
    return str(Path(tempfile.gettempdir(), name))


def script_of(root: str, trial: str) -> str:
    """The command that starts the program of a trial again, by itself."""
    if "://" in root:  # its folder is on the machine that trained it
        return f"sh FOLDER/{SCRIPT}, in the folder that its error names"
    return f"sh {shlex.quote(str(Path(root) / FOLDER / trial / SCRIPT))}"


def write_script(folder: Path, work: str | None, command: list[str]) -> None:
    """Write it into the folder of a trial."""
    lines = [f"cd {shlex.quote(str(Path(work or '.').absolute()))}", f"exec {shlex.join(command)}"]
    (folder / SCRIPT).write_text("\n".join(lines) + "\n", encoding="utf-8")
