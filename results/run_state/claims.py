"""Claims divide the work of one results folder between any number of workers.

While a pack runs, its worker keeps ``claims/<pack>.json``, created exclusively and renewed every
10 s with the step and last metric of its trials. It names the worker's process and node, also where
another process writes it. A claim is free when it was not renewed for two minutes; at once when its
worker ran on this machine and has ended, or when the sweep that started the worker learns that it
has (``abandon``). A worker that takes a free claim replaces the file; the former owner detects that
(``held``) and does not commit.

How the file is held in a folder and in an object store: ``claim_files``.
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from results.errors import ResultsError
from results.run_state.claim_files import (
    FOLDER,
    FolderFile,
    FolderFiles,
    ObjectFile,
    ObjectFiles,
    claim_files,
)
from results.run_state.processes import alive, identify
from results.storage.location import Location
from results.storage.names import RULE, is_plain
from results.storage.objects import File, Version

RENEW_SECONDS = 10.0
SILENT_SECONDS = 120.0

Progress = Mapping[str, tuple[int, float | None]]


_LARGEST_BYTES = 16 * 2**20
"""Largest bytes of a claim's file. A trial takes about a hundred."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


_Line = Annotated[str, Field(max_length=500), AfterValidator(_printable)]
"""Text that is safe on a terminal."""
_Count = Annotated[int, Field(ge=0, lt=2**63)]
# A metric that is not finite is dropped: it cannot be compared, and JSON does not have it.
_Metric = Annotated[
    float | None,
    AfterValidator(lambda value: value if value is None or math.isfinite(value) else None),
]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Process(_Strict):
    machine: _Line
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    start: _Count | None
    role: _Line | None = None


class _Info(_Strict):
    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool | None]
    experiment: _Line | None = None
    study: _Line | None = None


class _Content(_Strict):
    pack: _Line
    trials: list[str]
    token: _Line
    holder: _Process
    processes: list[_Process]
    info: _Info
    progress: dict[str, tuple[_Count, _Metric]]
    time: FiniteFloat


def _parse(pack: str, data: bytes) -> dict[str, Any] | None:
    """The content of the claim file of ``pack``, read strictly, since anybody who can write into
    the folder may have written it; ``None`` if it is not a claim of that pack."""
    try:
        read = _Content.model_validate_json(data)
    except ValidationError:
        return None
    if read.pack != pack or not is_plain(pack):
        return None
    content = read.model_dump(exclude_unset=True)
    content["progress"] = {trial: list(state) for trial, state in read.progress.items()}
    return content


class Claim:
    """A pack that this process holds; made by ``Claims.take``."""

    def __init__(
        self, claims: Claims, pack: str, content: dict[str, Any], file: FolderFile | ObjectFile
    ) -> None:
        self._claims = claims
        self.pack = pack
        self._content = content
        self._file = file
        self._renewed = time.monotonic()
        self._released = False
        self._writes = threading.Lock()
        """Held while its file is written or compared: one thread renews, another commits, and a
        file just written has a version that this process does not know yet."""

    def renew(self, progress: Progress, *, force: bool = False) -> bool:
        """Write the step and last metric of each trial, if 10 s have gone by (or ``force``).

        Call it as often as is convenient. Returns whether the claim is still held.

        Raises:
            ResultsError: the disk cannot be written.
        """
        if force or time.monotonic() - self._renewed >= RENEW_SECONDS:
            self._renewed = time.monotonic()
            self._content["progress"] = {trial: list(state) for trial, state in progress.items()}
            self._content["time"] = time.time()
            return self._write()
        return self.held()

    def extend(self, trials: Sequence[str]) -> bool:
        """Claim these too; whether they were free, and this claim still held.

        Raises:
            ResultsError: the disk cannot be written.
        """
        wanted = set(trials)
        with self._claims.locked() as lock:
            if not self.held():
                return False
            for other in self._claims.live():
                if other["pack"] != self.pack and wanted & set(other["trials"]):
                    return False
            self._content["trials"] += [t for t in trials if t not in self._content["trials"]]
            if not self._write():
                return False
            if lock.held():
                return True
        self.reduce(trials)
        return False

    def reduce(self, trials: Sequence[str]) -> None:
        """Give up these of its trials."""
        left = set(self._content["trials"]) - set(trials)
        self._content["trials"] = [t for t in self._content["trials"] if t in left]
        self._write()

    def held(self) -> bool:
        """Whether no other worker took it: only then may its trials be committed."""
        with self._writes:
            return not self._released and self._file.held()

    def release(self) -> None:
        """Release it at the end of the pack; nothing happens if another worker took it."""
        if self._released:
            return
        with self._claims.locked(), self._writes:
            self._file.remove()
            self._released = True

    def _write(self) -> bool:
        # One thread renews while another extends: the last to write must be the last to encode.
        with self._writes:
            return not self._released and self._file.write(json.dumps(self._content).encode())


class Claims:
    """The claims of a results folder (which exists: the Store made it)."""

    def __init__(self, root: str | Path | Location) -> None:
        self.location = Location.of(root)
        self._read_before: dict[str, tuple[Version, dict[str, Any]]] = {}
        """Of an object store: what a file held in a version."""

    @cached_property
    def _files(self) -> FolderFiles | ObjectFiles:
        return claim_files(self.location)

    def take(
        self,
        pack: str,
        trials: Sequence[str],
        *,
        processes: Iterable[Mapping[str, Any]] = (),
        info: Mapping[str, Any] | None = None,
        holder: Mapping[str, Any] | None = None,
    ) -> Claim | None:
        """Claim a pack, or ``None`` if it or any of its trials is claimed by a live worker.

        ``processes`` (``processes.identify``) are other processes that run for it: the driver, the
        workers of a group. ``info`` is for ``status`` (experiment, study, engine). ``holder`` is
        the process that trains it: this one, unless it writes for a worker elsewhere.

        Raises:
            ResultsError: the pack cannot name a file, or the disk cannot be written.
        """
        if not is_plain(pack):
            raise ResultsError(f"pack {pack!r} cannot name a file", hint=RULE)
        content = {
            "pack": pack,
            "trials": list(trials),
            "token": uuid.uuid4().hex,
            "holder": identify() if holder is None else dict(holder),
            "processes": [dict(process) for process in processes],
            "info": dict(info or {}),
            "progress": {},
            "time": time.time(),
        }
        with self.locked() as lock:
            wanted = set(trials)
            for other in self.live():
                if other["pack"] == pack or wanted & set(other["trials"]):
                    return None
            data = json.dumps(content).encode()
            file = self._files.create(_file(pack), data, len(data) + 64 * len(trials))
            if file is None:
                return None
            if lock.held():
                return Claim(self, pack, content, file)
            file.remove()
            return None

    def live(self) -> list[dict[str, Any]]:
        """The claims of workers that run, as written; see ``all``."""
        return [claim for claim in self.all() if not claim["free"]]

    def all(self) -> list[dict[str, Any]]:
        """Every claim: pack, trials, holder, processes, info, progress, time (seconds since the
        epoch of the last renewal), silent (seconds since then) and free (whether it can be taken).
        A file that is not a claim is ignored."""
        claims = []
        now = self.now()
        for file in self.location.files(FOLDER, ".json"):
            content = self._read(file)
            if content is None:
                continue
            # An object store may not report when a file was written.
            renewed = file.modified or content["time"]
            # A file dated ahead of its disk's clock is as dead as an old one.
            silent = abs(now - renewed) if self.location.local else max(0.0, now - renewed)
            ended = alive(content["holder"]) is False
            claims.append({**content, "silent": silent, "free": ended or silent > SILENT_SECONDS})
        return claims

    def abandon(self, pack: str, sweep: Iterable[Mapping[str, Any]] | None = None) -> bool:
        """Release the claim of a pack whose worker has died; whether there was one.

        It has to be a claim of the caller's own sweep, which knows of the death. ``sweep`` are the
        processes of that sweep, the driver among them, where this process is not the driver.
        """
        ours = {_key(p) for p in ([identify()] if sweep is None else _drivers(sweep))}
        with self.locked():
            claim = next((claim for claim in self.all() if claim["pack"] == pack), None)
            if claim is None or not ours & {_key(p) for p in _drivers(claim["processes"])}:
                return False
            self.location.delete(_file(pack))
            return True

    def clear(self) -> None:
        """Remove the free claims (of dead workers)."""
        with self.locked():
            for claim in self.all():
                if claim["free"]:
                    self.location.delete(_file(claim["pack"]))

    def locked(self) -> AbstractContextManager[Any]:
        """Hold the lock under which claims of this folder are taken, released and cleared.

        Raises:
            ResultsError: the disk cannot be written.
        """
        return self._files.locked()

    def now(self) -> float:
        """The clock by which the location dates its files."""
        if not self.location.local and "_files" not in vars(self):  # it only reads
            return time.time()
        return self._files.now()

    def _read(self, file: File) -> dict[str, Any] | None:
        """A claim's content; one that is being rewritten is read again, a broken one is none."""
        pack = file.name[len(FOLDER) + 1 : -len(".json")]
        if file.size > _LARGEST_BYTES:
            return None
        version, read = self._read_before.get(file.name, (None, None))
        if version is not None and version == file.version:
            return read
        before: bytes | None = None
        for _ in range(5):
            data = self.location.read(file.name)
            if data is None or data == before or len(data) > _LARGEST_BYTES:
                return None
            content = _parse(pack, data)
            if content is not None:
                if not self.location.local:
                    self._read_before[file.name] = file.version, content
                return content
            before = data
            time.sleep(0.005)
        return None


def trials_of(claims: Iterable[Mapping[str, Any]]) -> set[str]:
    """The trials of any of the claims."""
    return {trial for claim in claims for trial in claim["trials"]}


def _drivers(processes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [process for process in processes if process.get("role") == "driver"]


def _key(process: Mapping[str, Any]) -> tuple[Any, ...]:
    return process.get("machine"), process.get("pid"), process.get("start")


def _file(pack: str) -> str:
    return f"{FOLDER}/{pack}.json"
