"""An object store in memory, which pyarrow reads too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec
from obstore.store import MemoryStore
from pyarrow import fs

from results.storage.location import Location
from results.storage.objects import ObjectStore, Version

FOLDER = "/bucket/runs"


class Mirrored(ObjectStore):
    """What is written is in fsspec's memory as well."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.memory = fsspec.filesystem("memory")

    def _put(self, name: str, data: bytes, mode: Any) -> Version:
        version = super()._put(name, data, mode)
        self.memory.pipe_file(f"{FOLDER}/{name}", data)
        return version

    def delete(self, name: str) -> None:
        super().delete(name)
        with suppress(FileNotFoundError):
            self.memory.rm_file(f"{FOLDER}/{name}")


@contextmanager
def bucket() -> Iterator[Location]:
    """An empty one."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield Location(FOLDER, fs.PyFileSystem(fs.FSSpecHandler(memory)), Mirrored())
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
