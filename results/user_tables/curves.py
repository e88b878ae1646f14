"""A user's curves: a CSV or Parquet file read as a results dataset.

Either points, ``batch_size`` and ``steps`` (which need not be whole; repeated rows at a batch size
are repeated runs; ``relative_error`` is that of steps that were read off a figure), or whole
curves, ``batch_size``, ``step`` and metrics, with an optional ``run`` that distinguishes runs of
one batch size; their steps to a target come with ``with_target``. Or final losses: ``batch_size``,
``examples`` or ``tokens`` (the budget), and metrics: each row is a run of its own, measured once,
at its end (``analysis.curves.final_losses`` reads them).

A further column that a trials table has (``optimizer``, ``model``, ``dataset``, ``learning_rate``,
…) is that column; ``target`` is "METRIC < VALUE". Any other goes to the workload's ``fields``,
except numbers that describe single points: those that never differ between two rows of one batch
size. Each row or run is a trial of role ``repeat``: none is minimized over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from results.errors import ResultsError
from results.schema import GROUP_COLUMNS, METAPARAMETERS, SPLITS, TRIALS, json_text, table
from results.storage.source import Memory
from results.targets.target import Target, lower_is_better
from results.user_tables.table_file import TableFile

_TARGET = ("target_metric", "target_value", "lower_is_better")
_COLUMNS = (
    *(name for name in GROUP_COLUMNS if name not in {"study", "fields", "batch_size"}),
    *METAPARAMETERS,
    *_TARGET,
    *("seed", "precision", "device", "engine", "world_size", "last_miss", "train_examples"),
)
_LOWER = ("loss", "error", "entropy", "perplexity")


def read(path: Path) -> Memory:
    """Read the file.

    Raises:
        ResultsError: a column is missing (the nearest is named), or a cell is text, NaN, zero or
            negative where it may not be (its line is named).
    """
    return read_table(TableFile.read(path))


def read_table(file: TableFile) -> Memory:
    """As ``read``, of a table: its ``name`` is that of the experiment and the workload.

    Raises:
        ResultsError: as ``read``.
    """
    file.require("batch_size")
    budget = next((name for name in ("examples", "tokens") if file.has(name)), None)
    final = budget is not None and not file.has("step") and not file.has("steps")
    if not file.has("step") and not final:
        file.require("steps")
    rows = pd.DataFrame({"batch_size": file.numbers("batch_size", least=1, whole=True)})
    for name in _COLUMNS:
        if file.has(name):
            rows[name] = _column(file, name)
    if file.has("target"):
        _targets(file, rows)
    if final:
        return _final_losses(file, rows, str(budget))
    if file.has("steps"):
        rows["steps"] = file.numbers("steps", above=0)
        _refuse_overflow(file, rows, "steps")
        if file.has("relative_error"):
            rows["relative_error"] = _relative_errors(file)
        return _points(file, rows)
    rows["step"] = file.numbers("step", least=0, whole=True)
    _refuse_overflow(file, rows, "step")
    return _whole_curves(file, rows)


def _refuse_overflow(file: TableFile, rows: pd.DataFrame, name: str) -> None:
    """Steps times the batch size are a number of examples, which has 64 bits."""
    for at, (steps, size) in enumerate(zip(rows[name], rows["batch_size"], strict=True)):
        if steps * size >= 2.0**63:
            raise file.fail(at, f"{name} {steps:g} at batch size {size:g} is beyond 64 bits")


def _points(file: TableFile, rows: pd.DataFrame) -> Memory:
    extra = _fields(file, rows, skip={"steps", "step", "run", "target"})
    trials = []
    for at, row in enumerate(_records(rows)):
        steps = row.pop("steps")
        ends = {"steps_to_target": steps, "steps_run": int(-(-steps // 1)), "stop_reason": "target"}
        ends["examples_run"] = round(steps * row["batch_size"])
        where = file.places[at].replace(" ", "-")
        trials.append(_trial(file, where, row, {**extra[at], **ends}))
    return _memory(trials, [])


def _final_losses(file: TableFile, rows: pd.DataFrame, budget: str) -> Memory:
    """Each row a run that was measured at the end of its budget alone.

    ``examples`` are in units of the batch size. ``tokens`` are so too, unless a column
    ``tokens_per_example`` says how many tokens one of the batch's examples has.
    """
    given = file.numbers(budget, above=0)
    each = rows.get("tokens_per_example")
    if budget == "tokens" and each is None:
        rows["tokens_per_example"] = 1
        if "example_unit" not in rows:
            rows["example_unit"] = "token"
    elif budget == "tokens" and each is not None:
        for at, tokens in enumerate(each):
            if pd.isna(tokens) or tokens < 1:
                raise file.fail(at, "tokens_per_example must be a whole number of at least 1")
        given = [total / tokens for total, tokens in zip(given, each, strict=True)]
    others = [name for name in file.columns if name not in {*rows, "target", "examples", "tokens"}]
    metrics = [name for name in others if _is_metric(name)]
    if not metrics:
        raise ResultsError(
            f"{file.path} has no metric besides {budget}",
            hint="a column with the loss at the end of each run: loss, or validation_loss",
        )
    values = {name: file.numbers(name, empty=True) for name in metrics}
    extra = _fields(file, rows, skip={*metrics, "examples", "tokens", "run", "target"})
    trials, points = [], []
    for at, row in enumerate(_records(rows)):
        examples, size = float(given[at] or 0.0), row["batch_size"]
        if examples < size:
            raise file.fail(at, f"{budget} is {examples:g}, less than one batch of {size:g}")
        if examples >= 2.0**63:
            raise file.fail(at, f"{budget} is {examples:g}, which is beyond 64 bits")
        measured = {name: values[name][at] for name in metrics}
        ended = all(value is not None and abs(value) < float("inf") for value in measured.values())
        steps = round(examples / size)
        ends = {"steps_run": steps, "examples_run": round(examples), "role": "final"}
        why = {} if ended else {"status": "INFEASIBLE"}
        stop = {"stop_reason": "budget" if ended else "diverged"}
        where = file.places[at].replace(" ", "-")
        trial = {**_trial(file, where, row, {**extra[at], **ends}), **ends, **stop, **why}
        trials.append(trial)
        keys = {key: trial[key] for key in ("experiment", "study", "trial", "run")}
        metric = {name: v for name, v in measured.items() if v is not None and not pd.isna(v)}
        points.append({**keys, "step": steps, "examples": round(examples), "metrics": metric})
    return _memory(trials, points)


def _is_metric(name: str) -> bool:
    """Whether a column of final losses is a metric, and not a property of the model."""
    split = name.startswith(tuple(f"{split}_" for split in SPLITS))
    return (
        split or any(part in name.lower() for part in _LOWER) or not lower_is_better(name.lower())
    )


def _whole_curves(file: TableFile, rows: pd.DataFrame) -> Memory:
    group = [str(name) for name in rows if name != "step"]
    if file.has("run"):
        rows["run"] = [str(cell) for cell in file.columns["run"]]
    others = [name for name in file.columns if name not in {*rows, "target", "examples"}]
    texts = [name for name in others if not file.numeric(name)]
    keyed = pd.concat([rows, pd.DataFrame({name: file.columns[name] for name in texts})], axis=1)
    runs = [*group, *texts, *(["run"] if "run" in rows else [])]
    run = keyed.groupby(runs, dropna=False, sort=False).ngroup()
    metrics = []
    for name in others:
        split = name.startswith(tuple(f"{split}_" for split in SPLITS))
        if name in texts and not split:
            continue
        cells = pd.Series(file.numbers(name, empty=True), dtype=float)  # text: an error
        if split or cells.groupby(run).nunique(dropna=False).gt(1).any():
            metrics.append(name)
            rows[name] = cells
    if not {*metrics} - {"train_seconds"}:
        raise ResultsError(
            f"{file.path} has no metric besides step",
            hint="for example a column validation_error; or, for points, a column steps",
        )
    _refuse_double(file, rows, run)
    skip = {*metrics, "step", "run", "target", "examples"}
    extra = _fields(file, rows, skip=skip)
    trials, points = [], []
    for number, part in rows.groupby(run, sort=True):
        first, last = part.index[0], float(part["step"].max())
        row = _records(part.loc[[first], group])[0]
        ends = {"steps_run": int(last), "examples_run": int(last * row["batch_size"])}
        trial = _trial(file, f"run-{number}", row, {**extra[first], **ends})
        trials.append({**trial, "stop_reason": "budget"})
        evaluations = part.sort_values("step")[["step", *metrics]]
        for step, *values in evaluations.to_numpy(object).tolist():
            measured = dict(zip(metrics, values, strict=True))
            points.append(
                {
                    **{key: trial[key] for key in ("experiment", "study", "trial", "run")},
                    "step": int(step),
                    "examples": int(step * row["batch_size"]),
                    "train_seconds": measured.pop("train_seconds", None),
                    "metrics": {
                        key: value for key, value in measured.items() if not pd.isna(value)
                    },
                }
            )
    return _memory(trials, points)


def _refuse_double(file: TableFile, rows: pd.DataFrame, run: pd.Series) -> None:
    double = rows.assign(number=run).duplicated(["number", "step"])
    if double.any():
        at = [*double].index(True)
        step, size = int(rows["step"][at]), int(rows["batch_size"][at])
        raise file.fail(
            at,
            f"step {step} occurs twice in one run at batch size {size}",
            "distinguish the runs of a batch size by a column `run`",
        )


def _column(file: TableFile, name: str) -> list[Any]:
    kind = TRIALS.field(name).type
    if pa.types.is_integer(kind):
        values = file.numbers(name, empty=True, whole=True)
        return [None if value is None else int(value) for value in values]
    if pa.types.is_boolean(kind):
        return [_flag(file, name, row, cell) for row, cell in enumerate(file.columns[name])]
    if pa.types.is_floating(kind):
        return file.numbers(name, empty=True)
    texts = [None if cell is None else str(cell) for cell in file.columns[name]]
    return [_technique(text) for text in texts] if name == "technique" else texts


def _flag(file: TableFile, name: str, row: int, cell: Any) -> bool | None:
    if cell is None or isinstance(cell, bool):
        return cell
    flags = {"true": True, "false": False, "1": True, "0": False}
    if str(cell).lower() not in flags:
        raise file.fail(row, f"{name} is {cell!r}, but it must be true or false")
    return flags[str(cell).lower()]


def _technique(text: str | None) -> str | None:
    """JSON, as in that column; other text is the value of the key ``technique``."""
    try:
        if text is None or isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json_text({"technique": text})


def _relative_errors(file: TableFile) -> list[float | None]:
    errors = file.numbers("relative_error", least=0, empty=True)
    for at, error in enumerate(errors):
        if error is not None and error >= 1:
            raise file.fail(
                at,
                f"relative_error is {error:g}, but it must be below 1",
                "a share of the steps: 3 % is 0.03",
            )
    return errors


def _targets(file: TableFile, rows: pd.DataFrame) -> None:
    targets = []
    for at, cell in enumerate(file.columns["target"]):
        try:
            targets.append(Target.parse(str(cell)))
        except ResultsError as error:
            raise file.fail(at, str(error), error.hint) from error
    rows["target_metric"] = [target.metric for target in targets]
    rows["target_value"] = [target.value for target in targets]
    rows["lower_is_better"] = [target.lower_is_better for target in targets]


def _fields(file: TableFile, rows: pd.DataFrame, skip: set[str]) -> list[dict[str, Any]]:
    """``{"fields": {…}}`` of each row: the values that distinguish curves and have no column."""
    others = [name for name in file.columns if name not in {*rows, *skip}]
    texts = [name for name in others if not file.numeric(name)]
    numbers = [name for name in others if name not in texts]
    cells = pd.DataFrame({name: file.columns[name] for name in texts}, index=rows.index)
    group = [name for name in (*GROUP_COLUMNS, *_TARGET) if name in rows]
    keys = [rows[name] for name in group] + [cells[name] for name in texts]
    for name in numbers:
        values = pd.Series(file.numbers(name, empty=True), index=rows.index, dtype=float)
        if values.groupby(keys, dropna=False).nunique().gt(1).any() or values.nunique() == 1:
            cells[name] = [int(v) if v % 1 == 0 and abs(v) < 2**53 else v for v in values]
    return [
        {"fields": {name: value for name, value in row.items() if not pd.isna(value)} or None}
        for row in cells.astype(object).to_dict("records")
    ] or [{} for _ in rows.index]


def study_of(trial: Mapping[str, Any]) -> str:
    """The study of a trial that was not trained here: a hash of its group columns and target."""
    group = {name: trial.get(name) for name in (*GROUP_COLUMNS, *_TARGET) if name != "study"}
    return hashlib.sha256(json_text(group).encode()).hexdigest()[:16]


def _trial(
    file: TableFile, where: str, row: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    trial = {"experiment": file.name, "workload": file.name, **row, **more}
    used = {name: row[name] for name in METAPARAMETERS if name in row}
    metric = str(trial.get("target_metric", ""))
    if metric and "lower_is_better" not in trial:
        trial["lower_is_better"] = lower_is_better(metric)
    return {
        **trial,
        "study": study_of(trial),
        "trial": f"{file.name}-{where}",
        "run": file.name,
        "role": "repeat",
        "status": "COMPLETE",
        "metaparameters": used or None,
    }


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as mappings without their empty cells."""
    return [
        {str(name): value for name, value in row.items() if not pd.isna(value)}
        for row in rows.astype(object).to_dict("records")
    ]


def _memory(trials: list[dict[str, Any]], points: list[dict[str, Any]]) -> Memory:
    studies = {row["study"]: {name: row.get(name) for name in GROUP_COLUMNS} for row in trials}
    return Memory(
        {
            "studies": table("studies", list(studies.values())),
            "trials": table("trials", trials),
            "measurements": table("measurements", points),
        }
    )
