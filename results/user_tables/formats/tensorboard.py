"""TensorBoard's event files: those of a folder are one run, with those of its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from results.user_tables.formats.format import Format
from results.user_tables.formats.tensorboard_events import HPARAMS, records, row_of
from results.user_tables.names import PARTS
from results.user_tables.table_file import TableFile


def _is_part(folder: Path, *, beside: bool) -> bool:
    """Whether a folder is by its name a part of the run of the folder that it is in: of Keras, or,
    if event files are ``beside`` it, of ``add_scalars`` and ``add_hparams``."""
    of_torch = folder.name.rpartition("_")[2] in PARTS or bool(HPARAMS.fullmatch(folder.name))
    return folder.name in PARTS or (beside and of_torch)


def _files_of(folder: Path) -> list[Path]:
    """The event files of a run, by name."""
    beside = any(folder.glob("*tfevents*"))
    parts = [each for each in folder.iterdir() if each.is_dir() and _is_part(each, beside=beside)]
    return sorted(file for each in (folder, *parts) for file in each.glob("*tfevents*"))


def _runs(files: list[Path]) -> list[Path]:
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


def _read(folder: Path) -> TableFile | None:
    rows, places = [], []
    settings: dict[str, Any] = {}
    for file in [folder] if folder.is_file() else _files_of(folder):
        within = file.parent.relative_to(folder).name if folder.is_dir() else ""
        for number, (_, record) in enumerate(records(file.read_bytes()), start=1):
            row = row_of(file, record, within)
            if {"step", "epoch"} & {*row}:
                rows.append(row)
                places.append(f"{file.relative_to(folder.parent)} record {number}")
            else:
                settings |= row
    if any("step" in row for row in rows):
        kept = [at for at, row in enumerate(rows) if "step" in row]
        rows, places = [rows[at] for at in kept], [places[at] for at in kept]
    if not rows:
        return None
    table = TableFile.of_rows(folder, [{**settings, **row} for row in rows], places)
    means = {"step": "step"} if table.has("step") else {}
    return replace(table, means=means, logged=True)


FORMAT = Format(name="event files of TensorBoard", files=("*tfevents*",), read=_read, runs=_runs)
