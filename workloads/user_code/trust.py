"""Whether a Python file that a record names is run: one that this user has run before.

Anybody may have written a results folder, and the files of a cloned repository belong to whoever
cloned it: neither a folder's name, nor a file's owner, nor a hash that the record itself states
says who wrote the code. So this user's own list does: the SHA-256 of each file that was imported
because this user had named it (a sweep, a trial, ``--trust``), in the user's state folder.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_record: ContextVar[Path | None] = ContextVar("record", default=None)


class RefusedCodeError(Exception):
    """A file that is not to be run here. It is no error of that file: nothing that explains those
    catches it. ``file`` is not run, and ``reason`` is why."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} is not run: {reason}")
        self.file, self.reason = file, reason


@contextmanager
def named_by_record(results: str | Path) -> Iterator[None]:
    """Inside, what names the user's files is a record of the folder (or URI) ``results``."""
    before = _record.set(Path(results).resolve())
    try:
        yield
    finally:
        _record.reset(before)


def admit(file: Path, digest: str) -> None:
    """Called before a user's file of this SHA-256 is run, each time.

    Where a person has named it, it is remembered. Where a record has, it has to be of this user,
    outside of the results folder, and of a content that was remembered.

    Raises:
        RefusedCodeError: it is not.
    """
    folder = _record.get()
    if folder is None:
        with suppress(OSError, RuntimeError):  # read-only, or no home: nothing is remembered
            _remember(_list(), digest)
        return
    reason = None
    if file.resolve().is_relative_to(folder):
        reason = "it lies in the results folder"
    elif hasattr(os, "getuid") and file.stat().st_uid != os.getuid():
        reason = "it belongs to another user"
    elif digest not in _remembered():
        reason = "you have not run a file of this content before"
    if reason is not None:
        raise RefusedCodeError(file, reason)


def _list() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "batchscale" / "code"


def _remembered() -> set[str]:
    try:
        return set(_list().read_text(encoding="ascii").split())
    except (OSError, RuntimeError, ValueError):
        return set()


@functools.cache
def _remember(path: Path, digest: str) -> None:
    if digest not in _remembered():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a", encoding="ascii") as lines:
            lines.write(f"{digest}\n")
