"""Local files that appear whole, and stay after a power cut."""

from __future__ import annotations

import os
import uuid

import pyarrow as pa

TEMPORARY = ".tmp"


def write_file(path: str, data: bytes | pa.Buffer) -> None:
    """Write a local file so that it appears whole, and stays after a power cut.

    Raises:
        OSError: the disk is full, read-only, or forbidden; the temporary file is removed.
    """
    folder, name = os.path.split(path)
    make_folder(folder)
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


def make_folder(folder: str) -> None:
    """Create a local folder, and those above it, and bring them to the disk."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    os.makedirs(folder, exist_ok=True)
    _sync(parent)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
