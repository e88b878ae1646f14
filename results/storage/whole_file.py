"""Local files that appear whole, and stay after a power cut."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress

import pyarrow as pa

TEMPORARY = ".tmp"


def write_file(path: str, data: bytes | pa.Buffer, root: str | None = None) -> None:
    """Write a local file so that it appears whole, and stays after a power cut.

    Args:
        root: a folder above it, which is not made if it is missing.

    Raises:
        OSError: the disk is full, read-only, or forbidden; the temporary file is removed.
        FileNotFoundError: there is no ``root``.
    """
    folder, name = os.path.split(path)
    folder = folder or os.curdir
    make_folder(folder, root)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _sync(folder)


def create_file(path: str, data: bytes) -> None:
    """Write a local file unless there is one of that name.

    Raises:
        OSError: the disk cannot be written; the file is removed.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return
    try:
        os.write(handle, data)
        os.fsync(handle)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(handle)


def make_folder(folder: str, root: str | None = None) -> None:
    """Create a local folder and those between it and ``root``, and bring them to the disk.

    Raises:
        FileNotFoundError: there is no ``root``.
    """
    if os.path.isdir(folder):
        return
    if folder == root:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    parent = os.path.dirname(folder) or os.curdir
    make_folder(parent, root)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync(parent)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
