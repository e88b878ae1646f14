"""Results in the form that another program reads: one file for each kind.

An exporter is ``export_NAME(results, output, **options) -> Exported`` (``results.extensions``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results.errors import ResultsError
from results.storage.disk_errors import writing
from results.storage.whole_file import write_file

MARK = "batchscale-export.json"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export, or its progress."""

    output: str
    trials: int
    """Trials written, or present already."""
    of: int
    """Trials to write."""
    measurements: int
    changed: int
    """Trials that are new or were different."""
    next: str = ""
    """The command that reads the written files."""
    notes: Sequence[str] = ()
    """Notes for the user."""


Progress = Callable[[Exported], None]


class OutputFolder:
    """A new or empty folder, or one that an export of this kind has made before.

    A file in it marks it as an export; a folder that holds anything else is never written.

    Raises:
        ResultsError: it is a file, a URI, or holds files that no export of this kind has written.
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path = Path(path)
        self._kind = kind
        if "://" in str(path):
            raise ResultsError(
                f"cannot export to {path}: it is not a local folder",
                hint="export to a folder here, then copy it",
            )
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise ResultsError(
                f"cannot export to {path}: it is a file", hint="name a new or empty folder"
            )
        if not self._is_marked() and os.path.isdir(self.path) and any(self.path.iterdir()):
            raise ResultsError(
                f"{path} holds files that no export to {kind} has written; nothing was changed",
                hint="name a new or empty folder",
            )

    def mark(self) -> None:
        """Mark the folder as an export of this kind."""
        with writing(self.path):
            text = json.dumps({"export": self._kind}) + "\n"
            write_file(str((self.path / MARK).absolute()), text.encode())

    def _is_marked(self) -> bool:
        try:
            content = json.loads((self.path / MARK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(content, dict) and content.get("export") == self._kind
