"""The files of a local folder, written whole or not at all, which stay after a power cut."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from results.errors import ResultsError
from results.storage.disk_errors import retried
from results.storage.objects import File
from results.storage.whole_file import create_file, write_file


class LocalFiles:
    """A folder and what is in it, by names below it. Every method raises ``OSError`` if the disk
    cannot be read or written; an error that may pass is met by trying again for half a minute."""

    def __init__(self, path: str) -> None:
        self.path = path

    def list(self, folder: str, suffix: str = "") -> list[File]:
        """The files under a folder whose names end so, at any depth, in no order.

        Raises:
            ResultsError: a link to nowhere, behind which rows may be missing.
        """
        return retried(lambda: [*self._files(folder, suffix)])

    def children(self) -> Sequence[str] | None:
        """The names directly in the folder; ``None`` if there is no such folder."""
        with suppress(FileNotFoundError):
            return os.listdir(self.path)
        return None

    def exists(self, name: str) -> bool:
        """Whether there is such a file. What cannot be told is an error: the answer no deletes."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return stat.S_ISREG(retried(lambda: os.stat(self._at(name))).st_mode)
        return False

    def read(self, name: str) -> bytes | None:
        """All of a file; ``None`` if there is none."""

        def content() -> bytes:
            with open(self._at(name), "rb") as stream:
                return stream.read()

        with suppress(FileNotFoundError):
            return retried(content)
        return None

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a whole file, in place of one of that name, and its folders below this one."""
        retried(lambda: write_file(self._at(name), data, self.path))

    def create(self, name: str, data: bytes) -> None:
        """Write a file unless there is one of that name."""
        retried(lambda: create_file(self._at(name), data))

    def delete(self, name: str) -> None:
        """Delete a file; it is no error if there is none."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _files(self, folder: str, suffix: str) -> Iterator[File]:
        """Links are followed, and may go in circles: a folder is listed once. What is deleted
        meanwhile is left out."""

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        seen = set()
        for at, inner, names in os.walk(self._at(folder), onerror=failed, followlinks=True):
            if (real := os.path.realpath(at)) in seen:
                inner.clear()
                continue
            seen.add(real)
            for name in names:
                path = os.path.join(at, name)
                if os.path.islink(path) and not os.path.exists(path):
                    hint = "put back what it leads to"
                    raise ResultsError(f"{path} is a link to nowhere", hint=hint)
                with suppress(FileNotFoundError):
                    state = os.stat(path)
                    if name.endswith(suffix) and stat.S_ISREG(state.st_mode):
                        relative = os.path.relpath(path, self.path)
                        yield File(relative, state.st_size, state.st_mtime)
