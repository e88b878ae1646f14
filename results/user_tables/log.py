"""A log: a file, or the files of a folder, of the format that is found to be theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.counts import count
from results.errors import ResultsError
from results.schema import SCHEMAS
from results.user_tables import names
from results.user_tables.columns import understood
from results.user_tables.formats import (
    json_files,
    lightning,
    mlflow,
    optuna,
    ray,
    tables,
    tensorboard,
    text,
    trainer_state,
    wandb_offline,
)
from results.user_tables.formats.format import Format
from results.user_tables.formats.settings import beside, of_name
from results.user_tables.table_file import TableFile, number, unzipped

FORMATS: Sequence[Format] = (
    *(ray.RESULT, ray.PROGRESS, trainer_state.FORMAT, lightning.FORMAT, mlflow.FORMAT),
    wandb_offline.FORMAT,
    *(tensorboard.FORMAT, json_files.METRICS, optuna.FORMAT, tables.FORMAT, text.FORMAT),
    json_files.FORMAT,
)
"""What a tool writes beside others of these is read of the first one."""
_MOST = 20_000
"""Files and folders in a folder of logs."""
_PART = re.compile(r"(part|data|chunk|shard)([-_.]?[0-9a-f-]*)?(\.\w+)+")
"""Names of the files into which a table was divided."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """What was read, and of what."""

    format: str
    parts: int
    """Files, or folders of files that belong together."""
    original: TableFile
    """Under the names that it has."""
    table: TableFile
    """Under ours."""


def is_log(path: Path) -> bool:
    """Whether there are files at ``path`` that may be a log, and no results folder."""
    if path.is_dir() and any((path / name).is_dir() for name in SCHEMAS):
        return False
    try:
        files = _files(path)
    except (ResultsError, OSError):
        return False
    return any(each.find(files) for each in FORMATS)


def read_log(path: Path, given: Mapping[str, str] | None = None, *, complete: bool = False) -> Log:
    """Read a log.

    Args:
        given, complete: as of ``columns.understood``.

    Raises:
        ResultsError: there is nothing that can be read, or what it means cannot be told.
    """
    files = _files(path)
    for each in FORMATS:
        tables_of = ((file, each.read(file)) for file in each.find(files))
        read = [(file, table) for file, table in tables_of if table is not None]
        if read:
            break
    else:
        if printed := [f for f in text.FORMAT.find(files) if unzipped(f).suffix != ".txt"]:
            raise ResultsError(
                f"{printed[0]} has no line that reports a step and a metric",
                hint='as in {"step": 250, "val_loss": 3.28}, or step 250: val loss 3.28; or write '
                "a table: CSV with batch_size, step and metrics",
            )
        if path.is_dir():
            raise ResultsError(
                f"{path} holds no log that can be read",
                hint=f"of these: {', '.join(name for f in FORMATS for name in f.files)}",
            )
        each, read = tables.FORMAT, [(path, tables.read_table_file(path))]
    original = _joined(path, each, read)
    table = understood(original, given, complete=complete)
    history = original.has("_step") and not names.of_wandb_runs(original)
    name = "histories of Weights & Biases" if history else each.name
    return Log(format=name, parts=len(read), original=original, table=table)


def _files(path: Path) -> list[Path]:
    """A file itself; of a folder all files, by name, but for hidden ones and results folders.

    Raises:
        ResultsError: there are too many for a folder of logs.
    """
    if not path.is_dir():
        return [path] if path.is_file() else []
    paths: list[Path] = []
    entries = 0
    for folder, folders, files in os.walk(path):
        entries += len(folders) + len(files)
        if entries > _MOST:
            raise ResultsError(
                f"{path} holds more than {count(_MOST, 'file')}", hint="name a folder of logs in it"
            )
        folders[:] = [each for each in folders if not each.startswith(".")]
        if "studies" in folders and "trials" in folders:
            folders.clear()
            continue
        paths += [Path(folder, name) for name in files if not name.startswith(".")]
    return sorted(paths)


def _joined(path: Path, form: Format, read: Sequence[tuple[Path, TableFile]]) -> TableFile:
    """The rows of all files, with what distinguishes them."""
    several = len(read) > 1
    rows: dict[str, list[Any]] = {}
    places: list[str] = []
    for file, table in read:
        within = unzipped(file.relative_to(path) if path.is_dir() else Path(file.name))
        more = _about(path, form, file, within, table, several=several)
        columns = {**{n: [v] * len(table.places) for n, v in more.items()}, **table.columns}
        for name in {**rows, **columns}:
            before = rows.setdefault(name, [None] * len(places))
            before.extend(columns.get(name, [None] * len(table.places)))
        places += [f"{within} {place}" if several else place for place in table.places]
    means = {name: text for _, table in read for name, text in table.means.items()}
    logged = all(table.logged for _, table in read)
    return TableFile(path=path, columns=rows, places=places, means=means, logged=logged)


def _about(
    path: Path, form: Format, file: Path, within: Path, table: TableFile, *, several: bool
) -> dict[str, Any]:
    """What is true of all rows of a file: its settings, and its run or its name."""
    about: dict[str, Any] = of_name(within)
    folder = file if file.is_dir() else file.parent
    if form.is_run or folder != path:
        above = folder.parent if folder.name.startswith("checkpoint-") else folder
        about = {**beside(above), **about} if path.is_dir() or form.is_run else about
    if any(names.candidates(table, names.AXES["run"], config=False)):
        return about
    fixed = any("*" not in name for name in form.files) or file.is_dir()
    label = _label(path, within, file, fixed=fixed)
    if not form.is_run and _PART.fullmatch(within.name):
        return about
    if form.is_run or _is_run(table, several=several):
        about.setdefault("run", label)
    elif several:
        about["file"] = label
    return about


def _label(path: Path, within: Path, file: Path, *, fixed: bool) -> str:
    if not path.is_dir():
        return within.stem
    parts = within.parts if file.is_dir() else within.parent.parts
    if not fixed:
        parts = (*within.parent.parts, within.stem)
    return "-".join(parts) or path.absolute().name


def _is_run(table: TableFile, *, several: bool) -> bool:
    """Whether a file without a column of runs is a run: a history, or one of several files with
    steps and one batch size."""
    if table.has("_step"):
        return not names.of_wandb_runs(table)
    steps = any(names.candidates(table, names.AXES["step"], config=False))
    sizes = [*names.candidates(table, (*names.GLOBAL, *names.PLAIN), config=True)]
    single = not sizes or len({number(cell) for cell in table.columns[sizes[0]]} - {None}) < 2
    return several and steps and single
