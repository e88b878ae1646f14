"""measurements of AlgoPerf: a table of evaluations of each submission, workload and trial

A CSV or Parquet file as ``raw_measurements.csv``: ``workload``, ``trial``, ``global_step`` and
metrics as ``validation/accuracy``; optional ``submission``, ``study``, ``batch_size`` and
``hparams`` (JSON). AlgoPerf's target is reached where the metric equals it too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from results.errors import ResultsError, nearest
from results.extensions import Option
from results.imports import Imported
from results.imports.support.runs import Run, commit_runs, needed, size_of
from results.schema import SPLITS
from results.storage.location import Location
from results.targets.target import Target
from results.user_tables.table_file import TableFile

_FRAMEWORKS = ("_jax", "_pytorch")
_COUNTS = ("num_examples",)


def import_algoperf(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="A column of the file under another name: --map global_step=step.",
            flag="--map",
            metavar="NAME=THEIRS",
        ),
    ] = None,
    batch_sizes: Annotated[
        Mapping[str, str] | None,
        Option(
            help="The batch size of a workload, where the file has no column batch_size: "
            "--batch-size fastmri=32.",
            flag="--batch-size",
            metavar="WORKLOAD=N",
        ),
    ] = None,
    targets: Annotated[
        Mapping[str, str] | None,
        Option(
            help='The target of a workload: --target "wmt=validation_bleu > 30.8491"; a value that '
            "equals it reaches it, as AlgoPerf counts.",
            flag="--target",
            metavar="WORKLOAD=TARGET",
        ),
    ] = None,
    name: Annotated[str | None, "The experiment that the rows become; the file's name."] = None,
) -> Imported:
    """Import the evaluations of AlgoPerf's trials into ``results``.

    Raises:
        ResultsError: a column is missing, or a row that cannot be placed, with its line; nothing is
            written.
    """
    file = TableFile.read(path).renamed(columns or {})
    needed(file, "workload", "trial", "global_step")
    metrics = {theirs: ours for theirs in file.columns if (ours := _metric(theirs))}
    if not metrics:
        raise ResultsError(
            f"{path} line 1: no column of a metric, as validation/accuracy",
            hint=f"it has {', '.join(file.columns)}",
        )
    steps = file.numbers("global_step", least=0, whole=True)
    values = {ours: file.numbers(theirs, empty=True) for theirs, ours in metrics.items()}
    sizes = _sizes(file, batch_sizes or {})
    runs: dict[tuple[Any, ...], list[int]] = {}
    keys = [each for each in ("submission", "workload", "study", "trial") if file.has(each)]
    for row in range(len(steps)):
        if file.columns["workload"][row] is None or file.columns["trial"][row] is None:
            raise file.fail(row, "workload or trial is missing")
        runs.setdefault(tuple(str(file.columns[key][row]) for key in keys), []).append(row)
    workloads = {_workload(file.columns["workload"][row]) for row in range(len(steps))}
    goals = _goals(targets or {}, workloads, [*values])
    return commit_runs(
        results,
        [_run(file, keys, key, rows, steps, values, sizes, goals) for key, rows in runs.items()],
        experiment=name or path.stem,
        source={"citation": "AlgoPerf, MLCommons; Dahl et al. 2023 (arXiv:2306.07179)"},
        files=[path],
        options=[sorted((each or {}).items()) for each in (columns, batch_sizes, targets)],
    )


def _run(
    file: TableFile,
    keys: list[str],
    key: tuple[Any, ...],
    rows: list[int],
    steps: list[float | None],
    values: Mapping[str, list[float | None]],
    sizes: list[int],
    goals: Mapping[str, Target],
) -> Run:
    rows = sorted(rows, key=lambda row: steps[row] or 0)
    for before, row in pairwise(rows):
        if steps[before] == steps[row]:
            raise file.fail(row, f"global_step {steps[row]:g} occurs twice in trial {key[-1]}")
    if len({sizes[row] for row in rows}) > 1:
        raise file.fail(rows[-1], f"trial {key[-1]} has several batch sizes")
    names = dict(zip(keys, key, strict=True))
    measurements = []
    for row in rows:
        cells = {name: column[row] for name, column in values.items()}
        measured = {name: v for name, v in cells.items() if v is not None and not math.isnan(v)}
        measurements.append((int(steps[row] or 0), measured))
    return Run(
        name="-".join(key).replace("/", "-"),
        batch_size=sizes[rows[0]],
        measurements=measurements,
        steps_run=int(steps[rows[-1]] or 0),
        columns={
            "workload": _workload(names["workload"]),
            "fields": {"submission": names["submission"]} if "submission" in names else None,
            "stop_at_target": False,
            **_steps_to(goals.get(_workload(names["workload"])), measurements),
        },
        metaparameters=_used(file, rows[0]),
        published=names,
    )


def _steps_to(
    goal: Target | None, measurements: Sequence[tuple[int, Mapping[str, float]]]
) -> dict[str, Any]:
    """The columns of a trial that say when it reached its workload's target."""
    if goal is None:
        return {}
    last_miss = 0
    columns: dict[str, Any] = {
        "target_metric": goal.metric,
        "target_value": goal.value,
        "lower_is_better": goal.lower_is_better,
    }
    for step, measured in measurements:
        if goal.metric not in measured:
            continue
        if goal.hit(measured[goal.metric]):
            reached = {"steps_to_target": float(step), "last_miss": float(last_miss)}
            return {**columns, **reached, "stop_reason": "target"}
        last_miss = step
    return columns


def _metric(column: str) -> str | None:
    """``validation/accuracy`` is ``validation_accuracy``; None for a column that is no metric."""
    split, _, metric = column.partition("/")
    if split not in SPLITS or not metric or metric in _COUNTS:
        return None
    return f"{split}_{metric}".replace("/", "_")


def _workload(text: Any) -> str:
    """The workload without its framework."""
    name = str(text)
    for framework in _FRAMEWORKS:
        name = name.removesuffix(framework)
    return name


def _sizes(file: TableFile, given: Mapping[str, str]) -> list[int]:
    if file.has("batch_size"):
        column = file.numbers("batch_size", least=1, whole=True)
        return [size_of(file, row, value) for row, value in enumerate(column)]
    numbers = {}
    for workload, text in given.items():
        if not text.isdecimal() or not 1 <= int(text) < 2**40:
            raise ResultsError(
                f"--batch-size {workload}={text}: not a batch size", hint="a whole number"
            )
        numbers[workload] = int(text)
    sizes = []
    for row, cell in enumerate(file.columns["workload"]):
        if _workload(cell) not in numbers:
            raise file.fail(
                row,
                f"the batch size of {_workload(cell)} is not known",
                f"give it: --batch-size {_workload(cell)}=N (a submission's get_batch_size), or a "
                "column batch_size",
            )
        sizes.append(numbers[_workload(cell)])
    return sizes


def _goals(
    given: Mapping[str, str], workloads: set[str], metrics: Sequence[str]
) -> dict[str, Target]:
    goals = {}
    for workload, text in given.items():
        if workload not in workloads:
            raise ResultsError(
                f"--target {workload}=…: the file has no workload {workload!r}",
                hint=f"one of {', '.join(sorted(workloads))}",
            )
        goal = Target.parse(text)
        if goal.metric not in metrics:
            raise ResultsError(
                f"--target {workload}={text}: the file has no metric {goal.metric!r}",
                hint=nearest(goal.metric, metrics, f"one of {', '.join(metrics)}"),
            )
        # Here a target must be beaten strictly; there it is reached where the metric equals it.
        beyond = float(np.nextafter(goal.value, np.inf if goal.lower_is_better else -np.inf))
        goals[workload] = Target(
            metric=goal.metric, value=beyond, lower_is_better=goal.lower_is_better
        )
    return goals


def _used(file: TableFile, row: int) -> dict[str, Any]:
    if not file.has("hparams") or file.columns["hparams"][row] is None:
        return {}
    try:
        used = json.loads(str(file.columns["hparams"][row]))
    except (ValueError, RecursionError) as error:
        raise file.fail(row, "hparams is not JSON") from error
    if not isinstance(used, dict):
        raise file.fail(row, "hparams is not a JSON object")
    return {
        key: value
        for key, value in used.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
