"""A user's curves: a log or a table, read as a results dataset.

Either points, ``batch_size`` and ``steps`` (which need not be whole; empty, ``inf``, ``NaN``,
``DNF`` or ``> 20000`` where the target was not reached; ``relative_error`` is that of steps that
were read off a figure), or whole curves, ``batch_size``, ``step`` (or ``tokens``, several of a
``run``) and metrics, with an optional ``run`` that distinguishes runs of one batch size; their
steps to a target come with ``with_target``. Or final losses: ``batch_size``, ``examples`` or
``tokens`` (the budget), and metrics: each row is a run of its own, measured once, at its end
(``analysis.curves.final_losses`` reads them).

A further column that a trials table has (``optimizer``, ``model``, ``dataset``, ``learning_rate``,
…) is that column; ``target`` is "METRIC < VALUE". ``user_tables.runs`` says what any other is, and
``user_tables.columns`` which other names are read as these.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from results.errors import ResultsError
from results.schema import GROUP_COLUMNS, METAPARAMETERS, TRIALS, json_text
from results.storage.source import Memory
from results.targets.target import Target
from results.user_tables.log import read_log
from results.user_tables.names import FAILED, NOT_ENDED, is_metric
from results.user_tables.table_file import TableFile, number
from results.user_tables.trials import TARGET, memory, trials
from results.user_tables.whole_curves import whole_curves

_COLUMNS = (
    *(name for name in GROUP_COLUMNS if name not in {"study", "fields", "batch_size"}),
    *METAPARAMETERS,
    *TARGET,
    *("seed", "precision", "device", "engine", "world_size", "last_miss", "train_examples"),
)
_NOT_REACHED = {
    *("inf", "infinity", "+inf", "dnf", "nan", "na", "n/a", "none", "null", "-", "--", "missed"),
    *("not reached", "diverged", *(state.lower() for state in FAILED)),
}
_BEYOND = re.compile(r">=?\s*(\d.*)")


def read(path: Path) -> Memory:
    """Read a log.

    Raises:
        ResultsError: a column is missing (the nearest is named), or a cell is text, NaN, zero or
            negative where it may not be (its line is named).
    """
    return read_table(read_log(path).table)


def read_table(file: TableFile) -> Memory:
    """As ``read``, of a table under our names: its ``name`` is that of the experiment and the
    workload.

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
        rows["steps"], rows["budget_steps"] = _steps(file)
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
    settings = rows.drop(columns=["steps", "budget_steps"])
    made = trials(file, settings, _names(file), _others(file, rows, but={"run_state"}))
    for trial, steps, budget in zip(made, rows["steps"], rows["budget_steps"], strict=True):
        trial["stop_reason"] = "target" if math.isfinite(steps) else "budget"
        ran = math.ceil(steps) if math.isfinite(steps) else budget
        if ran == ran:
            trial |= {"steps_run": int(ran), "examples_run": round(ran * trial["batch_size"])}
        if math.isfinite(steps):
            trial |= {"steps_to_target": steps, "examples_run": round(steps * trial["batch_size"])}
        if budget == budget:
            trial["budget_steps"] = int(budget)
    return memory(made, [])


def _names(file: TableFile) -> list[str]:
    return [place.replace(" ", "-") for place in file.places]


def _others(file: TableFile, rows: pd.DataFrame, *, but: Collection[str] = ()) -> list[str]:
    """The columns that have no home among those of a trial."""
    skip = {*rows, *but, "steps", "step", "run", "target"}
    return [name for name in file.columns if name not in skip]


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
    but = {"examples", "tokens", "run_state"}
    metrics = [name for name in _others(file, rows, but=but) if is_metric(name)]
    if not metrics:
        raise ResultsError(
            f"{file.path} has no metric besides {budget}",
            hint="a column with the loss at the end of each run: loss, or validation_loss",
        )
    values = {}
    for name in metrics:
        cells = [None if _missed(cell) else cell for cell in file.columns[name]]
        values[name] = replace(file, columns={name: cells}).numbers(name, empty=True)
    made = trials(file, rows, _names(file), _others(file, rows, but={*metrics, *but}))
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
        if (state := _state(file, at)) in FAILED | NOT_ENDED:
            reason = "interrupted" if state in NOT_ENDED else "error"
            reason = "dominated" if state == "PRUNED" else reason
            trial |= {"status": "INCOMPLETE", "stop_reason": reason}
        keys = {key: trial[key] for key in ("experiment", "study", "trial", "run")}
        metric = {name: v for name, v in measured.items() if v is not None and not pd.isna(v)}
        points.append({**keys, "step": steps, "examples": round(examples), "metrics": metric})
    return memory(made, points)


def _state(file: TableFile, at: int) -> str:
    """How a row says that its run ended."""
    return str(file.columns["run_state"][at]).upper() if file.has("run_state") else ""


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


def _steps(file: TableFile) -> tuple[list[float], list[float]]:
    """Steps to target, infinite where a run did not reach it; and budgets, NaN where unknown."""
    cells = file.columns["steps"]
    budgets = [math.nan] * len(cells)
    if file.has("budget_steps"):
        given = file.numbers("budget_steps", above=0, empty=True)
        budgets = [math.nan if each is None else each for each in given]
    counted: list[Any] = [*cells]
    for at, cell in enumerate(cells):
        if beyond := _BEYOND.fullmatch(str(cell).strip()):
            budgets[at] = number(beyond[1].replace(",", "")) or math.nan
        if beyond or _missed(cell) or _state(file, at) in FAILED | NOT_ENDED:
            counted[at] = None
    filled = [1.0 if cell is None else cell for cell in counted]
    steps = replace(file, columns={"steps": filled}).numbers("steps", above=0)
    reached = zip(counted, steps, strict=True)
    return [math.inf if cell is None else float(s or 0) for cell, s in reached], budgets


def _missed(cell: Any) -> bool:
    """Whether a cell says that there is no number."""
    return cell is None or str(cell).strip().lower() in _NOT_REACHED


def _relative_errors(file: TableFile) -> list[float | None]:
    errors = file.numbers("relative_error", least=0, empty=True)
    for at, error in enumerate(errors):
        if error is not None and error >= 1:
            why = f"relative_error is {error:g}, but it must be below 1"
            raise file.fail(at, why, "a share of the steps: 3 % is 0.03")
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
