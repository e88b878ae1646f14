"""histories of Weights & Biases runs: a CSV or Parquet file a run, or a folder of them

Columns are ``_step``, metrics (``train/loss``, ``val/accuracy``; val, valid and eval are
validation) and the run's configuration (``config.batch_size``, or columns that are constant in a
run). ``run.history()`` of W&B returns 500 sampled rows: steps to a target from them would be wrong,
and such a file is refused. ``run.scan_history()`` and the history artifact are complete.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from results.counts import count
from results.errors import ResultsError
from results.extensions import Option
from results.imports import Imported
from results.imports.support.tables import commit_table
from results.schema import METAPARAMETERS, SPLITS
from results.storage.location import Location
from results.user_tables.runs import surviving
from results.user_tables.table_file import TableFile, number

SAMPLES = 500
"""The rows that ``run.history()`` returns of a longer run."""
_SPLITS = {"val": "validation", "valid": "validation", "eval": "validation", "dev": "validation"}
_RUNS = ("run_id", "_run", "run", "run_name")
_CONFIG = ("config.", "config/", "config_")
_NAMES = {"lr": "learning_rate", "bs": "batch_size", "optim": "optimizer", "wd": "weight_decay"}
_PER_DEVICE = ("per_device_train_batch_size", "train_micro_batch_size_per_gpu")
_MULTIPLES = ("gradient_accumulation_steps",)
_DEVICES = ("world_size", "n_gpu", "num_devices")
_GIVEN = {
    *("optimizer", "schedule", "model", "dataset", "workload", "batch_size", "seed"),
    *(*METAPARAMETERS, *_NAMES, *_PER_DEVICE, *_MULTIPLES, *_DEVICES),
}
"""Columns that are a run's configuration without a prefix too."""
_MEANT = {
    *("run", "step", "steps", "examples", "tokens", "tokens_per_example", "target"),
    *("experiment", "study", "trial"),
}
"""Names that mean something else in a table of whole curves."""


def import_wandb(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="A column of the files under its name here: --map batch_size=config.bs --map "
            "validation_loss=val/nll.",
            flag="--map",
            metavar="NAME=THEIRS",
        ),
    ] = None,
    step: Annotated[
        str | None, "The column of training steps, if log calls are not steps; else _step."
    ] = None,
    complete: Annotated[
        bool | None, "The histories are complete, though their steps are irregular."
    ] = None,
    name: Annotated[str | None, "The experiment that the runs become; the file's name."] = None,
) -> Imported:
    """Import the histories of W&B runs into ``results``.

    Raises:
        ResultsError: a history is sampled, a column is missing, or a row that cannot be placed,
            with its line; nothing is written.
    """
    batch_size = (columns or {}).get("batch_size", "")
    if batch_size.endswith(_PER_DEVICE):
        raise ResultsError(
            f"{batch_size} is the batch size of one device's forward pass, not that of an update",
            hint="leave that --map out: it is multiplied by gradient_accumulation_steps and n_gpu",
        )
    files = _files(path)
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    for file in files:
        table = TableFile.read(file)
        present = {new: old for new, old in (columns or {}).items() if table.has(old)}
        if columns and not present:
            present = dict(columns)  # refused by `renamed`, which names the nearest
        table = table.renamed(present)
        _require(table, step or "_step")
        before = {row["run"] for row in rows}
        for run, of_run in _by_run(table):
            if run in before:
                raise ResultsError(f"two runs are called {run!r}", hint="one file for each run")
            for place, row in _run(table, run, of_run, step or "_step", checked=not complete):
                places.append(place if file == path else f"{file.name} {place}")
                rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return commit_table(
        TableFile(
            path=path, columns={n: [row.get(n) for row in rows] for n in names}, places=places
        ),
        results,
        name=name,
        source={"notes": "histories of Weights & Biases"},
        files=files,
        options=(sorted((columns or {}).items()), step),
    )


def _require(table: TableFile, step: str) -> None:
    if not table.has(step):
        raise ResultsError(
            f"{table.path} line 1: no column {step!r}",
            hint=f"it has {', '.join(table.columns)}; another name is read by --map NAME=THEIRS",
        )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix.lower() in (".csv", ".parquet"))
    if not files:
        raise ResultsError(
            f"{path} holds no .csv or .parquet file",
            hint="a file for each run: pandas.DataFrame(run.scan_history()).to_parquet(FILE)",
        )
    return files


def _by_run(table: TableFile) -> list[tuple[str, list[int]]]:
    column = next((name for name in _RUNS if table.has(name)), None)
    stem = table.path.stem
    if column is None:
        return [(stem, list(range(len(table.places))))]
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(table.columns[column]):
        rows.setdefault(str(cell), []).append(row)
    return [(f"{stem}-{run}".replace("/", "-"), each) for run, each in rows.items()]


def _run(
    table: TableFile, name: str, rows: list[int], step: str, *, checked: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a run that count, under the names of a table of whole curves, with their places:
    what the run was configured with stands in each."""
    numbers = table.numbers(step, least=0, whole=True)
    logged = table.numbers("_step", least=0, whole=True) if table.has("_step") else numbers
    ascending = sorted(rows, key=lambda row: (logged[row] or 0, row))
    if checked:
        _refuse_sampled(table, name, [int(logged[row] or 0) for row in ascending])
    ascending = surviving(table, name, ascending, [int(numbers[row] or 0) for row in ascending])
    config = _config(table, rows, {step, "_step"})
    config.setdefault("batch_size", _global_batch(config))
    if config["batch_size"] is None:
        raise ResultsError(
            f"{table.path} line 1: no column batch_size or config.batch_size that is constant in "
            f"run {name}",
            hint=f"name it: --map batch_size=THEIRS, of {', '.join(table.columns)}",
        )
    metrics = _metrics(table, rows)
    if not metrics:
        raise ResultsError(
            f"{table.path} line 1: no column of a metric, as train/loss or val/loss",
            hint=f"name it: --map validation_loss=THEIRS, of {', '.join(table.columns)}",
        )
    values = {ours: table.numbers(theirs, empty=True) for theirs, ours in metrics.items()}
    by_step: dict[float | None, tuple[str, dict[str, Any]]] = {}
    for row in ascending:
        measured = {ours: v for ours, cells in values.items() if (v := cells[row]) is not None}
        if measured or row == ascending[-1]:
            _, before = by_step.get(numbers[row], ("", {}))
            by_step[numbers[row]] = table.places[row], {**before, **measured}
    for at, (place, measured) in by_step.items():
        yield place, {**config, "run": name, "step": at, **measured}


def _refuse_sampled(table: TableFile, name: str, steps: Sequence[int]) -> None:
    """Refuse a history whose gaps no logging interval explains.

    A complete one is logged every k steps, or at growing distances; a sample of it is not. Exactly
    500 rows of uneven gaps are a sample; of another length it takes more uneven gaps than even.
    """
    gaps = [after - before for before, after in pairwise(steps) if after > before]
    # Growing distances, rounded to whole steps, fall by one at most.
    growing = all(after >= before - max(1, 0.05 * before) for before, after in pairwise(gaps))
    if len(gaps) < 20 or growing:
        return
    usual = Counter(gaps).most_common(1)[0][1]
    uneven = 1 - usual / len(gaps)
    if (len(steps) == SAMPLES and uneven > 0) or uneven > 0.5:
        raise ResultsError(
            f"{table.path}: the history of {name} is sampled: {count(len(steps), 'row')} up to "
            f"_step {steps[-1]}, {uneven:.0%} of the gaps uneven",
            hint="export all rows: pandas.DataFrame(run.scan_history()), or the run's history "
            "artifact; run.history() returns a sample. If it is complete: --complete",
        )


def _metric(column: str) -> str | None:
    """``val/loss`` and ``val_loss`` are ``validation_loss``; None for what is no metric."""
    for mark in ("/", "_", "."):
        split, _, metric = column.partition(mark)
        split = _SPLITS.get(split, split)
        if split in SPLITS and metric:
            return f"{split}_{metric}".replace("/", "_").replace(".", "_")
    return None


def _metrics(table: TableFile, rows: Sequence[int]) -> dict[str, str]:
    """Our name of each column of a metric that was measured in ``rows``.

    Raises:
        ResultsError: two of them have one name.
    """
    by_column: dict[str, str] = {}
    for theirs, cells in table.columns.items():
        ours = _metric(theirs)
        if ours is None or all(cells[row] is None for row in rows):
            continue
        if ours in by_column.values():
            other = next(each for each in by_column if by_column[each] == ours)
            raise ResultsError(
                f"{table.path} line 1: {other} and {theirs} both are {ours}",
                hint=f"give one of them another name: --map test_{ours.partition('_')[2]}={theirs}",
            )
        by_column[theirs] = ours
    return by_column


def _global_batch(config: Mapping[str, Any]) -> float | None:
    """The global batch of Transformers' or DeepSpeed's configuration; None where it has none."""
    each = [number(config[name]) for name in _PER_DEVICE if name in config]
    times = [number(config[name]) for name in _MULTIPLES if name in config]
    devices = [number(config[name]) for name in _DEVICES if name in config][:1]
    factors = [each[0], *times, *devices] if each else [None]
    return None if None in factors else math.prod(f for f in factors if f is not None)


def _config(table: TableFile, rows: Sequence[int], skip: set[str]) -> dict[str, Any]:
    """What is constant in a run: configuration columns, and others that are no metric."""
    config: dict[str, Any] = {}
    for column, cells in table.columns.items():
        if column in skip or column in _RUNS or column.startswith("_") or _metric(column):
            continue
        values = {str(cells[row]): cells[row] for row in rows if cells[row] is not None}
        short = column
        for prefix in _CONFIG:
            short = short.removeprefix(prefix)
        given = short != column or column in _GIVEN
        if given and len(values) == 1:
            name = column if short in _MEANT else _NAMES.get(short, short)
            config[name] = next(iter(values.values()))
    return config
