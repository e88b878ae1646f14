"""The files of a local results folder, none of which lies behind a link out of it.

A results folder may be somebody else's: a link in it could lead to any file of this machine, to be
read into tables, overwritten or deleted, and links to folders can go in circles without end.
Sweeps make no links.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from results.errors import ResultsError

HINT = (
    "nothing behind it was read or written; put a copy in its place, or name the folder that holds "
    "the files themselves as the results"
)


class Listed(NamedTuple):
    """A file: its name relative to the root, bytes, seconds since the epoch."""

    name: str
    size: int
    modified: float


class LinkError(ResultsError):
    """A link that is not followed."""

    def __init__(self, path: str, where: str) -> None:
        super().__init__(f"{path} is a link {where}", hint=HINT)


def list_files(
    root: str, folder: str, suffix: str = "", *, follow: bool = False
) -> Iterator[Listed]:
    """The files under a folder of a root, at any depth, whose names end so, in no order. A missing
    folder has none; what is deleted meanwhile is left out.

    Args:
        follow: links are followed: of a folder that an installation has linked.

    Raises:
        LinkError: a link to a folder, or to a file out of the root.
        OSError: a folder that cannot be read.
    """
    if not follow:
        require_inside(root, f"{folder}/.")
    waiting = [folder]
    while waiting:
        at = waiting.pop()
        try:
            entries = list(os.scandir(os.path.join(root, at)))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = f"{at}/{entry.name}"
            if entry.is_symlink() and not follow:
                if entry.is_dir():
                    raise LinkError(entry.path, "to a folder")
                require_inside(root, name)
            if entry.is_dir():
                waiting.append(name)
            elif entry.name.endswith(suffix) and entry.is_file():
                try:
                    state = entry.stat()
                except FileNotFoundError:
                    continue
                yield Listed(name, state.st_size, state.st_mtime)


def is_inside(root: str, name: str) -> bool:
    """Whether the path of a name below a root leads to where the name says: into the root."""
    real = os.path.realpath(root)
    return os.path.realpath(os.path.join(root, name)).startswith(os.path.join(real, ""))


def require_inside(root: str, name: str) -> None:
    """Refuse a name below a root whose path leads out of it.

    Raises:
        LinkError: it does; the link is named.
    """
    at = root
    for part in os.path.normpath(name).split(os.sep):
        at = os.path.join(at, part)
        if os.path.islink(at) and not is_inside(root, os.path.relpath(at, root)):
            raise LinkError(at, "that leads out of the results folder")
