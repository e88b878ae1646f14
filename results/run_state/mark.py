"""The mark of a dataset: a small file with a random id in its root, written once.

Whoever writes remembers the id, hands it on to its workers, and looks for it before each write. A
folder that was moved, or whose mount is lost, has none or another one: nothing is written into what
is at that place now.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable

from results.errors import DatasetLostError, ResultsError

MARK = "dataset.json"
_ATTEMPTS, _PAUSE = 10, 0.1

Read = Callable[[str], bytes | None]


def dataset_of(data: bytes | None) -> str | None:
    """The id in a mark's content; ``None`` if it is none."""
    try:
        content = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    dataset = content.get("id") if isinstance(content, dict) else None
    return dataset if isinstance(dataset, str) else None


def marked(read: Read, create: Callable[[str, bytes], object], display: str) -> str:
    """The id of the dataset of ``display``, which gets its mark if it has none.

    Args:
        create: writes a file unless there is one of that name.

    Raises:
        ResultsError: the mark cannot be written, or is none of ours.
    """
    data = json.dumps({"id": uuid.uuid4().hex}).encode()
    for _ in range(_ATTEMPTS):
        there = read(MARK)
        if there is None:
            create(MARK, data)  # another process may be first
            continue
        if (dataset := dataset_of(there)) is not None:
            return dataset
        time.sleep(_PAUSE)  # it may be about to be written
    raise ResultsError(
        f"{display}/{MARK} does not name a dataset",
        hint="delete it, if nothing else needs it: the next sweep writes another",
    )


def require_marked(read: Read, expected: str, display: str) -> None:
    """
    Raises:
        DatasetLostError: the dataset of that id is not at this place any more.
    """
    hint = "put it back (move it, mount it), then give the same command again to continue"
    try:
        there = read(MARK)
    except ResultsError as error:
        raise DatasetLostError(f"the results folder is lost: {error}", hint=hint) from None
    if there is None:
        raise DatasetLostError(
            f"the results folder {display} is gone: moved, deleted, or its mount is lost", hint=hint
        )
    if dataset_of(there) != expected:
        raise DatasetLostError(
            f"{display} is another results folder than before: its {MARK} has another id", hint=hint
        )


def spool(dataset: str) -> str:
    """A folder of this user alone in the temporary directory of this machine, for rows of a dataset
    that is lost.

    Raises:
        ResultsError: another user has that name.
        OSError: the disk cannot be written.
    """
    folder = os.path.join(tempfile.gettempdir(), f"batchscale-{os.getuid()}-{dataset}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise ResultsError(f"{folder} belongs to another user: no row is kept there")
    return folder
