"""A results folder, here or in an object store: list, read, write whole files, delete.

A file is written under a temporary name that no reader of Parquet takes up (it starts with a dot
and does not end in ``.parquet``), brought to the disk, renamed, and the folder brought to the
disk. An object store gets one PUT, which is whole or absent by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from results.errors import ResultsError, is_utf8, nearest
from results.run_state.mark import MARK, marked, require_marked
from results.schema import SCHEMAS
from results.storage.disk_errors import ERRORS, line_of, unwritable
from results.storage.local import LocalFiles
from results.storage.masking import is_address, masked, well_formed
from results.storage.objects import File, ObjectStore
from results.storage.whole_file import make_folder

PACKAGED = {name: Path(__file__).parent.parent / name for name in ("published", "own")}
"""Packaged data by the name that can be given as a SOURCE."""

from_uri = fs.FileSystem.from_uri


def default_results() -> str:
    """``$BATCHSCALE_RESULTS``, else ``results/runs`` here."""
    return os.environ.get("BATCHSCALE_RESULTS") or "results/runs"


class Location:
    """The root of a results dataset: a local folder or a URI (``s3://bucket/folder``).

    A URI may hold keys. ``root``, ``display`` and every message have them masked; code that opens
    the dataset again, in this process or another one, gets the location itself.

    Raises:
        ResultsError: a URI that pyarrow does not know.
    """

    root: str
    """The address that it was opened from, for display: the keys of a URI are masked."""
    dataset: str | None
    """The id in the dataset's mark, once it was opened for writing (``open_dataset``)."""

    def __init__(
        self,
        root: str | Path,
        filesystem: fs.FileSystem | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self._address, self._given = str(root), (filesystem, store)
        if not is_utf8(self._address):
            raise ResultsError(f"the name {self._address} is not UTF-8", hint="rename that folder")
        self.root = masked(self._address, self._address)
        if filesystem is not None:
            self.filesystem, self.path = filesystem, self._address.rstrip("/")
        elif "://" in self._address:
            self.filesystem, self.path = self._opened()
        else:
            self.filesystem, self.path = fs.LocalFileSystem(), _folder(self._address)
        self.local = isinstance(self.filesystem, fs.LocalFileSystem)
        self.dataset: str | None = None

    @cached_property
    def store(self) -> LocalFiles | ObjectStore:
        """Whoever reads and writes whole files there.

        Raises:
            ResultsError: it cannot be opened, or is of a kind that is not known here.
        """
        if self.local:
            return LocalFiles(self.path)
        with self._reading(self.root):
            return self._given[1] or ObjectStore.open(self._address, self.filesystem)

    @classmethod
    def of(cls, root: str | Path | Location) -> Location:
        """The location of a folder or URI; a location is returned unchanged."""
        return root if isinstance(root, Location) else cls(root)

    def __repr__(self) -> str:
        return f"Location({self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:  # the receiving process opens the file system again
        return type(self), (self._address, *self._given), {"dataset": self.dataset}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Location)
            and self._address == other._address
            and self._given == other._given
        )

    def __hash__(self) -> int:
        return hash(self._address)

    def masked(self, text: str) -> str:
        """A text of another library about this location, without its keys."""
        return masked(text, self._address)

    def full(self, name: str) -> str:
        """The path of ``name`` in the file system."""
        return f"{self.path}/{name}"

    def display(self, name: str) -> str:
        """``name`` as the user would write it: below what the location was opened from."""
        folder = self.root.partition("?")[0] if "://" in self.root else self.root
        return f"{folder.rstrip('/')}/{name}"

    def require(self, *, writing: bool = False) -> None:
        """Refuse a folder that is not a results folder.

        A folder with files but none of our tables is not ours: it is neither read nor written. For
        writing, a missing or empty one is made into a results folder.

        Raises:
            ResultsError: it is not one (or, for reading, is missing or empty).
        """
        with self._reading(self.root):
            if self.local and os.path.isfile(self.path):
                raise ResultsError(
                    f"{self.root} is a file, not a results folder",
                    hint="a .csv, .jsonl or .parquet file is read as curves of your own; a folder "
                    "holds studies/, trials/ and measurements/",
                )
            children = self.store.children()
        # Object stores have no empty folders: the mark or a claim may be the first file of a sweep.
        first = () if self.local else ("claims", MARK)
        if any(child in SCHEMAS or child in first for child in children or ()):
            return
        if writing and not children:
            for table in SCHEMAS:
                self.make(table)
            return
        if children is None:
            usual = "batchscale sweep writes to results/runs unless --results names another folder"
            form = f"did you mean {{}}, the packaged data? {usual}"
            raise ResultsError(
                f"no results at {self.root}: there is no such folder",
                hint=nearest(self.root, () if "/" in self.root else PACKAGED, usual, form=form),
            )
        raise ResultsError(
            f"{self.root} is not a results folder: it holds none of {', '.join(SCHEMAS)}",
            hint="nothing in it was touched; name an empty or new folder"
            if writing
            else "name the folder that a sweep was given as --results",
        )

    def open_dataset(self) -> None:
        """Make it a results folder if it is none, and remember its id (``results.run_state.mark``).

        Raises:
            ResultsError: as ``require``.
            DatasetLostError: the dataset that was opened before is not there any more.
        """
        if self.dataset is not None:
            return self.check()
        self.require(writing=True)
        self.dataset = marked(self.read, self._create, self.root)
        return None

    def check(self) -> None:
        """
        Raises:
            DatasetLostError: the dataset that was opened is not there any more.
        """
        if self.dataset is not None:
            require_marked(self.read, self.dataset, self.root)

    def _create(self, name: str, data: bytes) -> None:
        """Write a file unless there is one of that name."""
        with self.writing(name):
            self.store.create(name, data)

    def empty(self) -> bool:
        """Whether the folder does not exist, or is empty; a file is not.

        Raises:
            ResultsError: it cannot be read.
        """
        with self._reading(self.root):
            return not (self.local and os.path.isfile(self.path)) and not self.store.children()

    def make(self, folder: str) -> None:
        """Create a folder and bring it to the disk (object stores have none).

        Raises:
            ResultsError: as ``write``.
        """
        self.check()
        if self.local:
            with self.writing(folder):
                make_folder(self.full(folder), None if self.dataset is None else self.path)

    def files(self, folder: str, suffix: str = "", *, hidden: bool = False) -> list[File]:
        """The files under a folder, at any depth, by name. A missing folder has none.

        Raises:
            ResultsError: it cannot be read.
        """
        with self._reading(self.display(folder)):
            listing = self.store.list(folder, suffix)
        wanted = (f for f in listing if hidden or not f.name.rpartition("/")[2].startswith("."))
        return sorted(wanted, key=lambda file: file.name)

    def exists(self, name: str) -> bool:
        with self._reading(self.display(name)):
            return self.store.exists(name)

    def read(self, name: str) -> bytes | None:
        """All of a file; ``None`` if there is none.

        Raises:
            ResultsError: it cannot be read.
        """
        with self._reading(self.display(name)):
            return self.store.read(name)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a whole file, replacing one of that name. The file is written in full or not at
        all.

        Raises:
            ResultsError: a full or read-only disk, or no permission; nothing is left behind.
            DatasetLostError: the dataset is not there any more.
        """
        self.check()
        with self.writing(name):
            self.store.write(name, data)

    def delete(self, name: str) -> None:
        """Delete a file; it is no error if it does not exist."""
        with self.writing(name):
            self.store.delete(name)

    def _opened(self) -> tuple[fs.FileSystem, str]:
        if not well_formed(self._address):
            raise ResultsError(
                f"cannot open {self.root}: a key in it contains a character that a URI cannot",
                hint="write / as %2F, @ as %40 and so on; or leave the keys out of the URI, to be "
                "read from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        try:
            return from_uri(self._address.rstrip("/"))
        except ERRORS as error:
            raise ResultsError(
                f"cannot open {self.root}: {self._line(error)}",
                hint="a folder, or a URI such as s3://bucket/folder or gs://bucket/folder",
            ) from self._cause(error)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except ERRORS as error:
            line = f"cannot read {what}: {self._line(error)}"
            raise ResultsError(line) from self._cause(error)

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Turn the error of a file that cannot be written into one line.

        Raises:
            ResultsError: a full or read-only disk, or no permission.
            DatasetLostError: the dataset is not there any more.
        """
        try:
            yield
        except ERRORS as error:
            if isinstance(error, FileNotFoundError):
                self.check()
            path = self.full(name) if self.local else self.display(name)
            raise unwritable(path, self._line(error), error) from self._cause(error)

    def _line(self, error: BaseException) -> str:
        return self.masked(line_of(error))

    def _cause(self, error: Exception) -> Exception | None:
        """The error itself, for a traceback; None if it would contain a key."""
        return error if self.masked(str(error)) == str(error) else None


def _folder(path: str) -> str:
    """The path of a local folder, whole."""
    if not path.strip():
        raise ResultsError("no results folder is named", hint="such as results/runs, or a URI")
    if is_address(path) and not os.path.exists(path):
        raise ResultsError(
            f"there is no folder {masked(path)}, and a URI needs two slashes",
            hint="give a URI as text: a Path takes one of its slashes away",
        )
    return os.path.abspath(path)
