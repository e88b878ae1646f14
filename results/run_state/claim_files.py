"""How a claim's file is held: in a folder by its open file, in an object store by its version.

In both, taking and releasing happen under one lock. A folder's lock is the system's, which releases
it if its holder dies. An object store's is an object, created only if there is none, which its
holder renews; one that has not changed for twenty seconds, by the clock of whoever waits, is
replaced. Its former holder may only have slept: what it has done under the lock counts only if it
still has the lock afterwards (``Lock.held``). Its holder says in it who it is: ``lock_holders``.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from results.errors import ResultsError
from results.run_state.lock_holders import Waiting, naming_holder
from results.run_state.processes import identify
from results.storage.disk_errors import line_of, retried, writing
from results.storage.location import Location
from results.storage.objects import ObjectStore, Version

FOLDER = "claims"
LOCK = f"{FOLDER}/.lock"
LEASE_SECONDS = 20.0
"""Seconds without a renewal after which the lock of an object store is taken from its holder."""
_LONGEST_PAUSE = 1.0


class Lock(Protocol):
    """The lock of a folder's claims, while it is held."""

    def held(self) -> bool:
        """Whether nobody else can have had it meanwhile."""


class ClaimFile(Protocol):
    """A claim's file that this process has written."""

    def write(self, data: bytes) -> bool:
        """Write it again; whether it is still held."""

    def held(self) -> bool:
        """Whether no other process has replaced or deleted it."""

    def remove(self) -> None:
        """Delete it, if it is still held. The lock must be held."""

    def close(self) -> None:
        """Nothing more is done with it."""


class ClaimFiles(Protocol):
    """The claims' files of a location."""

    exclusive: bool
    """Whether a file can be created for one process alone."""

    def locked(self) -> AbstractContextManager[Lock]:
        """Hold the lock."""

    def create(self, name: str, data: bytes, spare: int) -> ClaimFile | None:
        """Write a claim that nobody holds, under the lock; ``None`` if another process was first.

        Args:
            spare: bytes by which it will grow.
        """

    def now(self) -> float:
        """The clock by which the location dates its files: a shared disk may have its own."""


def claim_files(location: Location) -> ClaimFiles:
    """Those of a folder, or of an object store with or without conditional writes.

    Raises:
        ResultsError: the store cannot be reached or refuses.
    """
    if location.local:
        return FolderFiles(location)
    store = location.objects
    if store is None or not _keeps_conditions(location, store):
        return PlainFiles(location)
    return ObjectFiles(location, store)


def _keeps_conditions(location: Location, store: ObjectStore) -> bool:
    """Whether a store refuses to create an object twice: older ones ignore the condition."""
    name = f"{FOLDER}/.condition-{uuid.uuid4().hex}"
    with _writing(location, name):
        store.create(name, b"first")
        kept = store.create(name, b"second") is None
        store.delete(name)
    return kept


class _Always:
    def held(self) -> bool:
        return True


class FolderFiles:
    """Those of a folder.

    The owner renews through its open file. After a replacement nobody reads that file, so a
    suspended owner can never overwrite the claim of its successor.
    """

    exclusive = True

    def __init__(self, location: Location) -> None:
        self.location = location

    @contextmanager
    def locked(self) -> Iterator[Lock]:
        """Hold the lock of the system."""
        import fcntl

        self.location.make(FOLDER)
        path, name = self.location.full(LOCK), self.location.display(LOCK)
        with writing(path):
            handle = retried(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
        try:
            # A file system without locks: exclusive creation alone divides the packs there.
            with suppress(OSError):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with naming_holder(name, lambda: os.pread(handle, 1000, 0)):
                        fcntl.flock(handle, fcntl.LOCK_EX)
                holder = json.dumps(identify()).encode()
                os.ftruncate(handle, os.pwrite(handle, holder, 0))
            yield _Always()
        finally:
            os.close(handle)

    def create(self, name: str, data: bytes, spare: int) -> FolderFile | None:
        path = self.location.full(name)
        # A free claim is replaced. A new one is created at its place, since not every file system
        # has hard links: who reads it before it is written has no lock, and reads it again.
        replacing = os.path.lexists(path)
        made = f"{path}.{uuid.uuid4().hex}.tmp" if replacing else path
        with writing(path):
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
        path = self.location.full(LOCK)
        try:
            os.utime(path, follow_symlinks=False)
            return os.lstat(path).st_mtime
        except OSError:  # a folder that we may only read, or without any claim yet
            return time.time()


class FolderFile:
    """A claim's file in a folder."""

    def __init__(self, path: str, handle: int) -> None:
        self._path, self._handle = path, handle

    def write(self, data: bytes) -> bool:
        with writing(self._path):
            # Padded to the size it has, so that a reader never meets the end of a longer text.
            handle = self._handle
            retried(lambda: os.pwrite(handle, data.ljust(os.fstat(handle).st_size), 0))
        return self.held()

    def held(self) -> bool:
        with writing(self._path):
            try:
                return os.path.samestat(
                    retried(lambda: os.stat(self._path)), os.fstat(self._handle)
                )
            except FileNotFoundError:
                return False

    def remove(self) -> None:
        if self.held():
            os.unlink(self._path)

    def close(self) -> None:
        os.close(self._handle)


class ObjectFiles:
    """Those of an object store with conditional writes.

    Raises:
        ResultsError: by every method, if the store cannot be reached or refuses.
    """

    exclusive = True

    def __init__(self, location: Location, store: ObjectStore) -> None:
        self.location, self._store = location, store
        self._lock: _Lease | None = None

    @contextmanager
    def locked(self) -> Iterator[Lock]:
        """Wait for the lock, and renew it while it is held."""
        with _writing(self.location, LOCK):
            lease = _Lease.take(self._store, self.location.display(LOCK))
        self._lock = lease
        try:
            yield lease
        finally:
            self._lock = None
            with suppress(OSError):  # another takes it after the lease
                lease.release()

    def create(self, name: str, data: bytes, spare: int) -> ObjectFile | None:  # noqa: ARG002
        with _writing(self.location, name):
            there = self._store.head(name)  # a free claim
            if there is None:
                version = self._store.create(name, data)
            else:
                version = self._store.replace(name, data, there.version)
        return None if version is None else ObjectFile(self.location, self._store, name, version)

    def now(self) -> float:
        # The lock has just been written, if this process has it.
        if self._lock is None:
            return time.time()
        with _writing(self.location, LOCK):
            return self._lock.time()


class ObjectFile:
    """A claim's file in an object store: each renewal replaces the very version that it wrote."""

    def __init__(self, location: Location, store: ObjectStore, name: str, version: Version) -> None:
        self._location, self._store, self._name = location, store, name
        self._version: Version | None = version

    def write(self, data: bytes) -> bool:
        if self._version is not None:
            with _writing(self._location, self._name):
                self._version = self._store.replace(self._name, data, self._version)
        return self._version is not None

    def held(self) -> bool:
        with _writing(self._location, self._name):
            there = self._store.head(self._name)
        return there is not None and there.version == self._version

    def remove(self) -> None:
        if self.held():
            with _writing(self._location, self._name):
                self._store.delete(self._name)

    def close(self) -> None:
        """Nothing is open."""


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
        since, pause = time.monotonic(), 0.02
        waiting = Waiting(name)
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
            waiting.say(lambda: (store.read(LOCK) or (b"",))[0])
            # Those who wait must not come together again.
            time.sleep(random.uniform(0.5, 1) * pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def held(self) -> bool:
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


class PlainFiles:
    """Those of a store without conditional writes, where a single sweep may write."""

    exclusive = False

    def __init__(self, location: Location) -> None:
        self.location = location

    @contextmanager
    def locked(self) -> Iterator[Lock]:
        yield _Always()

    def create(self, name: str, data: bytes, spare: int) -> PlainFile | None:  # noqa: ARG002
        self.location.write(name, data)
        return PlainFile(self.location, name)

    def now(self) -> float:
        return time.time()


class PlainFile:
    """A claim's file that nobody else writes."""

    def __init__(self, location: Location, name: str) -> None:
        self._location, self._name = location, name

    def write(self, data: bytes) -> bool:
        self._location.write(self._name, data)
        return True

    def held(self) -> bool:
        return True

    def remove(self) -> None:
        self._location.delete(self._name)

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def _writing(location: Location, name: str) -> Iterator[None]:
    """Turn an object store's error into one line."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot write {location.display(name)}: {location.masked(line_of(error))}",
            hint="what was committed before is safe; give the same command again",
        ) from None
