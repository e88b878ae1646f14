"""The folder of an export: ours by a small file in it, and nobody else's is ever touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.storage.location import write_file, writing

MARK = "batchscale-export.json"


class OutputFolder:
    """A new or empty folder, or one that an export of this kind has made before.

    Raises:
        ResultsError: it is a file, a URI, or holds what no export of this kind has written.
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
        mark = self.path / MARK
        self.known = self._read(mark) if os.path.isfile(mark) else {}
        if not self.known and os.path.isdir(self.path) and any(self.path.iterdir()):
            raise ResultsError(
                f"{path} holds files that no export to {kind} has written; nothing was touched",
                hint="name a new or empty folder",
            )

    def mark(self, known: dict[str, Any]) -> None:
        """Say that the folder is ours, and what the next export is to know of this one."""
        self.known = {"export": self._kind, **known}
        text = json.dumps(self.known, indent=1, sort_keys=True) + "\n"
        with writing(self.path):
            write_file(str((self.path / MARK).absolute()), text.encode())

    def _read(self, mark: Path) -> dict[str, Any]:
        try:
            found = json.loads(mark.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        ours = isinstance(found, dict) and found.get("export") == self._kind
        return found if ours else {}
