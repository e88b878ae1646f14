"""Data files of a workload, which workers get as copies: where they lie, and what they contain."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from workloads.errors import WorkloadError

_FOLDER = "batchscale-data"


def listed(paths: Iterable[str | Path]) -> list[str]:
    """What ``Workload.data_files`` returned, in alphabetical order, each once.

    Raises:
        WorkloadError: it is one path, and not a list of them.
    """
    if isinstance(paths, (str, Path)):
        message = f"data_files returned {str(paths)!r}, and not a list of paths"
        raise WorkloadError(message, hint=f"return [{str(paths)!r}]")
    return sorted({str(path) for path in paths})


def located(path: str, folder: Path, called: str = "data file {}") -> Path:
    """The file that ``path`` names, or this worker's copy of it.

    Args:
        path: absolute, or relative to ``folder``.
        folder: that of the experiment; on a worker, that of its copies.
        called: what messages call it, with its path in the place of ``{}``.

    Raises:
        WorkloadError: there is no such file.
    """
    try:
        copy = folder / staged_place(path)
        file = copy if copy.is_file() else folder / Path(path).expanduser()
        if file.is_file():
            return file.resolve()
        what = "not a file but a folder:" if file.is_dir() else "no file"
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, nobody's home
        raise WorkloadError(f"{called.format(repr(path))} cannot be a file: {error}") from None
    raise WorkloadError(
        f"{called.format(path)}: {what} {file.resolve()}",
        hint="a path is relative to the experiment file, or without one to the current folder",
    )


def staged_place(path: str) -> str:
    """Where a worker's copy lies in its folder of the experiment's files.

    At ``path`` itself, if that stays below the folder of the experiment; else below a folder of its
    own for each path: a field keeps its value, which is part of the identity.
    """
    parts = Path(path).expanduser()
    if parts.is_absolute() or ".." in parts.parts:
        of_path = hashlib.sha256(path.encode()).hexdigest()[:16]
        return f"{_FOLDER}/{of_path}/{parts.name}"
    return parts.as_posix()


def fingerprint(paths: Iterable[str | Path], folder: Path) -> str | None:
    """SHA-256 of the contents of the files, in the alphabetical order of their paths; ``None``
    without a file.

    Raises:
        WorkloadError: as ``located`` and ``listed``.
    """
    digests = []
    for path in listed(paths):
        file = located(path, folder)
        state = file.stat()
        digests.append(_digest(file, state.st_mtime_ns, state.st_size))
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests else None


@functools.lru_cache(maxsize=256)
def _digest(file: Path, modified: int, size: int) -> str:
    del modified, size  # part of the key: an edited file is read again
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
