"""How a claim's file is held: in a folder by its open file, in an object store by its version.

In both, taking and releasing happen under one lock. A folder's lock is the system's, which releases
it if its holder dies. An object store's is an object, created only if there is none, which its
holder renews; one that has not changed for twenty seconds, by the clock of whoever waits, is
replaced. Its former holder may only have slept: what it has done under the lock counts only if it
still has the lock afterwards (``held``). Its holder says in it who it is: ``lock_holders``.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from results.errors import ResultsError
from results.run_state.lock_holders import Waiting
from results.run_state.processes import identify
from results.storage.disk_errors import retried, writing
from results.storage.location import Location
from results.storage.objects import ObjectStore, Version

FOLDER = "claims"
LOCK = f"{FOLDER}/.lock"
LEASE_SECONDS = 20.0
"""Seconds without a renewal after which the lock of an object store is taken from its holder."""


def claim_files(location: Location) -> FolderFiles | ObjectFiles:
    """Those of a folder, or of an object store.

    Raises:
        ResultsError: the store cannot be reached, refuses, or does not keep conditions.
    """
    store = location.store
    return ObjectFiles(location, store) if isinstance(store, ObjectStore) else FolderFiles(location)


class FolderFiles:
    """Those of a folder.

    The owner renews through its open file. After a replacement nobody reads that file, so a
    suspended owner can never overwrite the claim of its successor.
    """

    def __init__(self, location: Location) -> None:
        self.location = location

    @contextmanager
    def locked(self) -> Iterator[FolderLock]:
        """Hold the lock of the system.

        Raises:
            ResultsError: the disk cannot be written.
        """
        import fcntl

        self.location.make(FOLDER)
        path = self.location.full(LOCK)
        waiting = Waiting(self.location.display(LOCK), longest=0.05)
        with self.location.writing(LOCK):
            handle = retried(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
        try:
            # A file system without locks: exclusive creation alone divides the packs there.
            with suppress(OSError):
                while True:
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        waiting.pause(lambda: os.pread(handle, 1000, 0))
                holder = json.dumps(identify()).encode()
                os.ftruncate(handle, os.pwrite(handle, holder, 0))
            yield FolderLock()
        finally:
            os.close(handle)

    def create(self, name: str, data: bytes, spare: int) -> FolderFile | None:
        """Write a claim that nobody holds, under the lock; ``None`` if another process was first.

        Args:
            spare: bytes by which it will grow.
        """
        path = self.location.full(name)
        # A free claim is replaced. A new one is created at its place, since not every file system
        # has hard links: who reads it before it is written has no lock, and reads it again.
        replacing = os.path.lexists(path)
        made = f"{path}.{uuid.uuid4().hex}.tmp" if replacing else path
        with self.location.writing(name):
            try:
                handle = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                return None
            try:
                os.pwrite(handle, data.ljust(len(data) + spare), 0)
                if replacing:
                    os.replace(made, path)
            except OSError:
                os.close(handle)
                os.unlink(made)
                raise
        return FolderFile(path, handle)

    def now(self) -> float:
        """The clock by which the disk dates its files: a shared one may have its own."""
        path = self.location.full(LOCK)
        try:
            os.utime(path, follow_symlinks=False)
            return os.lstat(path).st_mtime
        except OSError:  # a folder that we may only read, or without any claim yet
            return time.time()


class FolderLock:
    """The lock of a folder's claims, while it is held."""

    def held(self) -> bool:
        """Whether nobody else can have had it meanwhile: the system sees to that."""
        return True


class FolderFile:
    """A claim's file in a folder, which this process has written."""

    def __init__(self, path: str, handle: int) -> None:
        self._path, self._handle = path, handle

    def write(self, data: bytes) -> bool:
        """Write it again; whether it is still held."""
        with writing(self._path):
            # Padded to the size it has, so that a reader never meets the end of a longer text.
            handle = self._handle
            retried(lambda: os.pwrite(handle, data.ljust(os.fstat(handle).st_size), 0))
        return self.held()

    def held(self) -> bool:
        """Whether no other process has replaced or deleted it."""
        with writing(self._path):
            try:
                return os.path.samestat(
                    retried(lambda: os.stat(self._path)), os.fstat(self._handle)
                )
            except FileNotFoundError:
                return False

    def remove(self) -> None:
        """Delete it, if it is still held, under the lock. Nothing more is done with it."""
        if self.held():
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        os.close(self._handle)


class ObjectFiles:
    """Those of an object store.

    Raises:
        ResultsError: by every method, if the store cannot be reached or refuses.
    """

    def __init__(self, location: Location, store: ObjectStore) -> None:
        self.location, self._store = location, store
        self._lock: _Lease | None = None
        name = f"{FOLDER}/.condition-{uuid.uuid4().hex}"
        with location.writing(name):
            store.create(name, b"first")
            refused = store.create(name, b"second") is None
            store.delete(name)
        if not refused:
            raise ResultsError(
                f"{location.root} cannot be written by a sweep: its store ignores conditions of "
                "writes (If-None-Match), by which sweeps divide their work",
                hint="use a store that keeps them, such as S3, or a folder",
            )

    @contextmanager
    def locked(self) -> Iterator[_Lease]:
        """Wait for the lock, and renew it while it is held."""
        with self.location.writing(LOCK):
            lease = _Lease.take(self._store, self.location.display(LOCK))
        self._lock = lease
        try:
            yield lease
        finally:
            self._lock = None
            with suppress(OSError):  # another takes it after the lease
                lease.release()

    def create(self, name: str, data: bytes, spare: int) -> ObjectFile | None:  # noqa: ARG002
        """As that of a folder."""
        with self.location.writing(name):
            there = self._store.head(name)  # a free claim
            if there is None:
                version = self._store.create(name, data)
            else:
                version = self._store.replace(name, data, there.version)
        return None if version is None else ObjectFile(self.location, self._store, name, version)

    def now(self) -> float:
        """The store's clock."""
        # The lock has just been written, if this process has it.
        if self._lock is None:
            return time.time()
        with self.location.writing(LOCK):
            return self._lock.time()


class ObjectFile:
    """A claim's file in an object store: each renewal replaces the very version that it wrote."""

    def __init__(self, location: Location, store: ObjectStore, name: str, version: Version) -> None:
        self._location, self._store, self._name = location, store, name
        self._version: Version | None = version

    def write(self, data: bytes) -> bool:
        """Write it again; whether it is still held."""
        if self._version is not None:
            with self._location.writing(self._name):
                self._version = self._store.replace(self._name, data, self._version)
        return self._version is not None

    def held(self) -> bool:
        """Whether no other process has replaced or deleted it."""
        with self._location.writing(self._name):
            there = self._store.head(self._name)
        return there is not None and there.version == self._version

    def remove(self) -> None:
        """Delete it, if it is still held, under the lock. Nothing more is done with it."""
        if self.held():
            self._location.delete(self._name)


class _Lease:
    """The lock of an object store: an object that its holder renews in a thread."""

    def __init__(self, store: ObjectStore, content: dict[str, Any], version: Version) -> None:
        self._store, self._content = store, content
        self._version: Version | None = version
        self._renewals = 0
        self._writes = threading.Lock()  # as that of a claim
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="claims lock", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, store: ObjectStore, name: str) -> _Lease:
        """Wait for the lock, called ``name`` in messages."""
        content = {"token": uuid.uuid4().hex, **identify()}
        data = json.dumps(content).encode()
        seen: Version | None = None
        since, waiting = time.monotonic(), Waiting(name, longest=1.0)
        while True:
            if (version := store.create(LOCK, data)) is not None:
                return cls(store, content, version)
            there = store.head(LOCK)
            if there is None:
                continue
            if there.version != seen:
                seen, since = there.version, time.monotonic()
            elif time.monotonic() - since > LEASE_SECONDS and (
                version := store.replace(LOCK, data, seen)
            ):
                return cls(store, content, version)
            waiting.pause(lambda: store.read(LOCK) or b"")

    def held(self) -> bool:
        """Whether nobody else can have had it meanwhile."""
        with self._writes:
            there = self._store.head(LOCK)
            return there is not None and there.version == self._version

    def time(self) -> float:
        there = self._store.head(LOCK)
        return time.time() if there is None else there.modified

    def release(self) -> None:
        self._released.set()
        self._thread.join()
        if self.held():
            self._store.delete(LOCK)

    def _renew(self) -> None:
        while not self._released.wait(LEASE_SECONDS / 4):
            self._renewals += 1
            data = json.dumps({**self._content, "renewals": self._renewals}).encode()
            with suppress(OSError), self._writes:
                if self._version is not None:
                    self._version = self._store.replace(LOCK, data, self._version)
