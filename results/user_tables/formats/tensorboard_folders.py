"""Which folders of TensorBoard's event files are runs, and which are parts of one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from results.user_tables.names import PARTS

HPARAMS = re.compile(r"\d{9,}(\.\d+)+")
"""The folder that ``add_hparams`` of torch makes."""


def _is_part(folder: Path) -> bool:
    """Whether a folder is by its name a part of the run of the folder that it is in: of Keras, of
    ``add_scalars``, or the settings that ``add_hparams`` writes beside the scalars."""
    return folder.name.rpartition("_")[2] in PARTS or bool(HPARAMS.fullmatch(folder.name))


def files_of(folder: Path) -> list[Path]:
    """The event files of a run, by name."""
    parts = [each for each in folder.iterdir() if each.is_dir() and _is_part(each)]
    return sorted(file for each in (folder, *parts) for file in each.glob("*tfevents*"))


def runs(files: list[Path]) -> list[Path]:
    """The folders of runs, which have event files or parts that have some; a file alone is one."""
    if len(files) == 1:
        return files
    folders = [*dict.fromkeys(file.parent for file in files)]
    parts = Counter(each.parent for each in folders if _is_part(each))
    return [
        *dict.fromkeys(
            each.parent
            if _is_part(each) and (each.parent in folders or parts[each.parent] > 1)
            else each
            for each in folders
        )
    ]
