"""A user's curves: a CSV, JSON Lines or Parquet file read as a results dataset.

Either points, ``batch_size`` and ``steps`` (which need not be whole; ``inf`` or ``DNF`` where the
target was not reached; ``relative_error`` is that of steps that were read off a figure), or whole
curves, ``batch_size``, ``step`` and metrics, with an optional ``run`` that distinguishes runs of
one batch size; their steps to a target come with ``with_target``. Or final losses: ``batch_size``,
``examples`` or ``tokens`` (the budget), and metrics: each row is a run of its own, measured once,
at its end (``analysis.curves.final_losses`` reads them); several rows of a ``run`` are its curve.

A further column that a trials table has (``optimizer``, ``model``, ``dataset``, ``learning_rate``,
…) is that column; ``target`` is "METRIC < VALUE". ``user_tables.runs`` says what any other is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from results.errors import ResultsError
from results.schema import GROUP_COLUMNS, METAPARAMETERS, SPLITS, TRIALS, json_text
from results.storage.source import Memory
from results.targets.target import Target, lower_is_better
from results.user_tables.table_file import TableFile
from results.user_tables.trials import TARGET, memory, trials
from results.user_tables.whole_curves import whole_curves

_COLUMNS = (
    *(name for name in GROUP_COLUMNS if name not in {"study", "fields", "batch_size"}),
    *METAPARAMETERS,
    *TARGET,
    *("seed", "precision", "device", "engine", "world_size", "last_miss", "train_examples"),
)
_NOT_REACHED = {"inf", "infinity", "+inf", "dnf"}
_LONG_FORM = ("key", "metric", "metric_name")
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
    long_form = [name for name in _LONG_FORM if file.has(name) and not file.numeric(name)]
    if long_form and file.has("value"):
        raise ResultsError(
            f"{file.path} has a row for each metric: columns {long_form[0]} and value",
            hint="a column for each metric is read: pandas.DataFrame.pivot",
        )
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
        _refuse_curves(file)
        return _final_losses(file, rows, str(budget))
    if file.has("steps"):
        rows["steps"] = _steps(file)
        _refuse_overflow(file, rows, "steps")
        if file.has("relative_error"):
            rows["relative_error"] = _relative_errors(file)
        return _points(file, rows)
    rows["step"] = file.numbers("step", least=0, whole=True)
    _refuse_overflow(file, rows, "step")
    return whole_curves(file, rows)


def _refuse_overflow(file: TableFile, rows: pd.DataFrame, name: str) -> None:
    """Steps times the batch size are a number of examples, which has 64 bits."""
    for at, (steps, size) in enumerate(zip(rows[name], rows["batch_size"], strict=True)):
        if math.isfinite(steps) and steps * size >= 2.0**63:
            raise file.fail(at, f"{name} {steps:g} at batch size {size:g} is beyond 64 bits")


def _points(file: TableFile, rows: pd.DataFrame) -> Memory:
    made = trials(file, rows.drop(columns="steps"), _names(file), _others(file, rows))
    for trial, steps in zip(made, rows["steps"], strict=True):
        if not math.isfinite(steps):
            trial["stop_reason"] = "budget"
            continue
        trial |= {"steps_to_target": steps, "steps_run": math.ceil(steps), "stop_reason": "target"}
        trial["examples_run"] = round(steps * trial["batch_size"])
    return memory(made, [])


def _names(file: TableFile) -> list[str]:
    return [place.replace(" ", "-") for place in file.places]


def _others(file: TableFile, rows: pd.DataFrame, *, but: Collection[str] = ()) -> list[str]:
    """The columns that have no home among those of a trial."""
    skip = {*rows, *but, "steps", "step", "run", "target"}
    return [name for name in file.columns if name not in skip]


def _refuse_curves(file: TableFile) -> None:
    """Several rows of one run are no final losses."""
    runs = list(zip(file.columns.get("run", ()), file.columns["batch_size"], strict=False))
    if at := next((at for at, run in enumerate(runs) if run in runs[:at]), 0):
        raise file.fail(
            at,
            f"run {runs[at][0]} has several rows: a curve, not the loss at the end of a run",
            "add a column step; or leave the column run out, if each row is a run of its own",
        )


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
    made = trials(
        file, rows, _names(file), _others(file, rows, but={*metrics, "examples", "tokens"})
    )
    points = []
    for at, trial in enumerate(made):
        examples, size = float(given[at] or 0.0), trial["batch_size"]
        if examples < size:
            raise file.fail(at, f"{budget} is {examples:g}, less than one batch of {size:g}")
        if examples >= 2.0**63:
            raise file.fail(at, f"{budget} is {examples:g}, which is beyond 64 bits")
        measured = {name: values[name][at] for name in metrics}
        ended = all(value is not None and abs(value) < float("inf") for value in measured.values())
        steps = round(examples / size)
        trial |= {"steps_run": steps, "examples_run": round(examples), "role": "final"}
        trial |= {"search": None, "replicate": None}  # its budget is a column of the curve
        trial["stop_reason"] = "budget" if ended else "diverged"
        if not ended:
            trial["status"] = "INFEASIBLE"
        keys = {key: trial[key] for key in ("experiment", "study", "trial", "run")}
        metric = {name: v for name, v in measured.items() if v is not None and not pd.isna(v)}
        points.append({**keys, "step": steps, "examples": round(examples), "metrics": metric})
    return memory(made, points)


def _is_metric(name: str) -> bool:
    """Whether a column of final losses is a metric, and not a property of the model."""
    split = name.startswith(tuple(f"{split}_" for split in SPLITS))
    return (
        split or any(part in name.lower() for part in _LOWER) or not lower_is_better(name.lower())
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


def _steps(file: TableFile) -> list[float]:
    """Steps to target; infinite where a run did not reach it."""
    missed = [str(cell).lower() in _NOT_REACHED for cell in file.columns["steps"]]
    cells = [
        1.0 if miss else cell for miss, cell in zip(missed, file.columns["steps"], strict=True)
    ]
    for at, cell in enumerate(cells):
        if cell is None or cell != cell or str(cell).lower() == "nan":
            what = "missing" if cell is None else "NaN"
            raise file.fail(at, f"steps is {what}", "inf where the run did not reach the target")
    steps = replace(file, columns={"steps": cells}).numbers("steps", above=0)
    return [math.inf if miss else float(s or 0) for miss, s in zip(missed, steps, strict=True)]


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
