"""Which folders of TensorBoard's event files are runs, and which are parts of one."""

from __future__ import annotations

import re
from pathlib import Path

from results.user_tables.names import PARTS

HPARAMS = re.compile(r"\d{9,}(\.\d+)+")
"""The folder that ``add_hparams`` of torch makes."""


def _is_part(folder: Path, *, beside: bool) -> bool:
    """Whether a folder is by its name a part of the run of the folder that it is in: of Keras, or,
    if event files are ``beside`` it, of ``add_scalars`` and ``add_hparams``."""
    of_torch = folder.name.rpartition("_")[2] in PARTS or bool(HPARAMS.fullmatch(folder.name))
    return folder.name in PARTS or (beside and of_torch)


def files_of(folder: Path) -> list[Path]:
    """The event files of a run, by name."""
    beside = any(folder.glob("*tfevents*"))
    parts = [each for each in folder.iterdir() if each.is_dir() and _is_part(each, beside=beside)]
    return sorted(file for each in (folder, *parts) for file in each.glob("*tfevents*"))


def runs(files: list[Path]) -> list[Path]:
    """The folders of runs, which have event files or parts that have some; a file alone is one."""
    if len(files) == 1:
        return files
    folders = [*dict.fromkeys(file.parent for file in files)]
    roots = []
    for each in folders:
        beside = each.parent in folders
        several = sum(_is_part(f, beside=beside) and f.parent == each.parent for f in folders) > 1
        roots.append(each.parent if _is_part(each, beside=beside) and (beside or several) else each)
    return [*dict.fromkeys(roots)]
