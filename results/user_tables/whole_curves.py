"""A user's table of whole curves: a row for each evaluation of each run."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from results.counts import count
from results.errors import ResultsError
from results.schema import INTERVAL_COLUMNS, SPLITS
from results.storage.source import Memory
from results.targets.target import Target
from results.user_tables.names import is_measured
from results.user_tables.runs import phases_of, run_numbers, set_apart_ramps, surviving
from results.user_tables.table_file import TableFile
from results.user_tables.trials import memory, trials

_PARTIAL = INTERVAL_COLUMNS[0]
_LOST = "{} logged before a run went on from a checkpoint, and trained again: not used"
_EPOCHS = "{} ends at step {:,} of {:,}: if it was logged over epochs, its steps are no updates"
_AT_EACH = "runs have values at each step: if steps count epochs, say --map examples=step*50000"
_RAMP = (
    "the batch size changes between two evaluations: examples are counted from the earlier one on"
)
_NO_METRICS = {"target", "examples", "run", "run_state"}


def whole_curves(file: TableFile, rows: pd.DataFrame) -> Memory:
    """The runs of ``rows``: columns ``batch_size``, ``step``, and those that a trial has.

    A step of a run that goes back was trained again, and the later rows count. A run whose last
    value of a metric is NaN or infinite has diverged; an empty cell was not measured.

    Raises:
        ResultsError: as ``curves.read``.
    """
    for at, cell in enumerate(file.columns.get(_PARTIAL, ())):
        if cell is not None:
            why = "a mean over a part of a split, where a table has values of the whole one"
            raise file.fail(at, why, f"leave such rows out: WHERE {_PARTIAL} IS NULL")
    given = [str(name) for name in rows if name not in {"batch_size", "step"}]
    if file.has("run"):
        rows["run"] = [str(cell) for cell in file.columns["run"]]
    others = [name for name in file.columns if name not in {*rows, *_NO_METRICS}]
    splits = tuple(f"{split}_" for split in SPLITS)
    measured = {n for n in others if n.startswith(splits) or is_measured(file, n)}
    texts = [name for name in others if not file.numeric(name) and name not in measured]
    for name in texts:
        rows[name] = file.columns[name]
    rows = set_apart_ramps(rows, ["run"] if file.has("run") else texts)
    known = [*given, *(n for n in ("batch_sizes", "technique") if n in rows and n not in given)]
    numbers = [name for name in given if pd.api.types.is_numeric_dtype(rows[name])]
    run = run_numbers(rows, [*(name for name in known if name not in numbers), *texts], numbers)
    cells = {name: file.numbers(name, empty=True) for name in others if name not in texts}
    counted = [
        at
        for _, part in rows.groupby(run, sort=False)
        for at in _counted(file, part, {n: cells[n] for n in (measured or cells)})
    ]
    rows, run = rows.loc[sorted(counted)].copy(), run.loc[sorted(counted)]
    for name, column in cells.items():
        rows[name] = pd.Series(column, dtype=float).loc[rows.index]
    varies = [
        name
        for name in (*known, *others)
        if rows[name].groupby(run).nunique(dropna=name in cells).gt(1).any()
    ]
    metrics = [name for name in cells if name in measured or name in varies]
    if not {*metrics} - {"train_seconds"}:
        theirs = file.means.get("step", "THEIRS")
        theirs = file.means.get(theirs, theirs)
        other = f"; or, for points, a column steps: --map steps={theirs}"
        raise ResultsError(
            f"{file.path} has no metric besides step",
            hint=f"for example a column validation_error{other if theirs != 'steps' else ''}",
        )
    if not file.logged:
        _refuse_double(file, rows, run, metrics)
    runs = rows.groupby(run, sort=False)
    first = rows.loc[[part.index[0] for _, part in runs]]
    made = trials(
        file,
        first[["batch_size", *(name for name in known if name not in varies)]],
        _names(first),
        [name for name in others if name not in varies and name not in metrics],
    )
    lost = len(file.places) - len(counted)
    notes = [_LOST.format(count(lost, "row", "were"))] if lost else []
    notes += _over_epochs(rows, run, sorted(measured))
    points = []
    for trial, (_, part) in zip(made, runs, strict=True):
        ramp = [_RAMP] if trial.get("batch_sizes") else []
        trial["notes"] = [*(trial["notes"] or ()), *notes, *ramp] or None
        ended = all(_ended([cells[name][at] for at in part.index]) for name in metrics)
        phases, last = phases_of(trial), int(part["step"].max())
        examples = int(phases.examples(last))
        trial |= {"steps_run": last, "examples_run": examples, "stop_reason": "budget"}
        if not ended:
            trial |= {"status": "INFEASIBLE", "stop_reason": "diverged"}
        evaluations = part.groupby("step")[metrics].last().reset_index()
        if trial.get("target_metric") in evaluations:
            trial |= _reached(trial, evaluations)
        keys = {key: trial[key] for key in ("experiment", "study", "trial", "run")}
        for step, *values in evaluations.to_numpy(float).tolist():
            pairs = zip(metrics, values, strict=True)
            evaluated = {name: value for name, value in pairs if not math.isnan(value)}
            if evaluated:
                place = {"step": int(step), "examples": int(phases.examples(step))}
                seconds = evaluated.pop("train_seconds", None)
                points.append({**keys, **place, "train_seconds": seconds, "metrics": evaluated})
    return memory(made, points)


def _over_epochs(rows: pd.DataFrame, run: pd.Series, metrics: Sequence[str]) -> list[str]:
    """A note where steps look like epochs, and one for each metric that ends long before the
    others in every run."""
    steps = rows["step"].groupby(run).agg(["min", "max", "nunique"])
    ends, n = steps["max"], steps["nunique"]
    each = (ends - steps["min"] + 1 == n) & n.between(3, 1000) & steps["min"].le(1)
    notes = [_AT_EACH] if each.all() and rows["batch_size"].nunique() > 1 else []
    for name in metrics:
        steps = rows.loc[rows[name].notna(), "step"].groupby(run).agg(["max", "count"])
        if len(steps) and (steps["count"].gt(2) & (20 * steps["max"]).lt(ends[steps.index])).all():
            notes.append(_EPOCHS.format(name, int(steps["max"].max()), int(ends.max())))
    return notes


def _names(first: pd.DataFrame) -> list[str]:
    """A name for each run, by a row of each: what the table calls it, where that is its own."""
    if "run" in first and first["run"].is_unique:
        return [*first["run"]]
    return [f"run-{number}" for number in range(len(first))]


def _reached(trial: Mapping[str, Any], evaluations: pd.DataFrame) -> dict[str, Any]:
    """When a run reached the target in its row: its first hit, and the evaluation before."""
    metric, value = trial["target_metric"], trial["target_value"]
    target = Target(metric=metric, value=value, lower_is_better=trial["lower_is_better"])
    measured = evaluations[evaluations[metric].notna()]
    hits = target.hits(measured[metric]).to_numpy()
    if not hits.any():
        return {"stop_at_target": False}
    first, steps = int(hits.argmax()), [0, *measured["step"]]
    reached = {"steps_to_target": float(steps[first + 1]), "last_miss": float(steps[first])}
    return {**reached, "status": "COMPLETE", "stop_reason": "target", "stop_at_target": False}


def _counted(
    file: TableFile, part: pd.DataFrame, cells: Mapping[str, Sequence[float | None]]
) -> list[int]:
    """The rows of a run that count; one without double steps may be in any order."""
    places, steps = part.index.tolist(), part["step"].astype(int).tolist()
    if part["step"].is_unique and not file.logged:
        return places
    first = part.iloc[0]
    name = str(first["run"]) if "run" in part else f"of batch size {first['batch_size']:.0f}"
    measured: list[Collection[str]] = [
        [metric for metric, column in cells.items() if column[at] is not None] for at in places
    ]
    return surviving(file, name, places, steps, measured)


def _ended(cells: list[float | None]) -> bool:
    """Whether the last cell of a metric that is not empty is a finite number."""
    last = next((cell for cell in reversed(cells) if cell is not None), 0.0)
    return math.isfinite(last)


def _refuse_double(file: TableFile, rows: pd.DataFrame, run: pd.Series, metrics: list[str]) -> None:
    """Several rows may hold the metrics of one step, but each metric one value."""
    keys: list[Any] = [run, rows["step"]]
    values = rows.groupby(keys)[metrics].transform("nunique")
    double = (values > 1).any(axis=1) & rows.assign(run=run).duplicated(["run", "step"])
    if double.any():
        at = rows.index[[*double].index(True)]
        step, size = int(rows["step"][at]), int(rows["batch_size"][at])
        why = f"step {step} occurs twice in one run at batch size {size}"
        raise file.fail(at, why, "distinguish the runs of a batch size by a column `run`")
