"""What an adapter is: which files it reads, and how it makes a table of one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from results.user_tables.table_file import TableFile, unzipped


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of logs. Its tables have the names of the tool."""

    name: str
    """As a sentence names it: ``trainer_state.json of Transformers``."""
    files: tuple[str, ...]
    """Patterns of the names of its files."""
    read: Callable[[Path], TableFile | None]
    """A file as a table; None where it holds something else."""
    runs: Callable[[list[Path]], list[Path]] = list
    """What to read of the files that match in a folder: some of them, or the folders of them."""
    is_run: bool = True
    """Whether a file without a column ``run`` is one run."""

    def find(self, files: Sequence[Path]) -> list[Path]:
        """What there is to read among ``files``, in their order."""
        named = [f for f in files if any(fnmatch(unzipped(f).name, name) for name in self.files)]
        return self.runs(named)
