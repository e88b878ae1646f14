"""Legal values of a results dataset: an error names a row that batchscale cannot have written.

The types of columns are the schema's and are checked with each file's footer; the values are
checked here. A null, or a NaN in its place, is always allowed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.errors import ResultsError

_HINT = "move its file out of the folder: that row was not written by batchscale"

_COUNTS = {
    **{"batch_size": 1, "trials_wanted": 1, "keep": 1, "tokens_per_example": 0},
    **dict.fromkeys(
        ("budget_steps", "train_examples", "steps_run", "examples_run", "skipped_steps"), 0
    ),
    **dict.fromkeys(("gradients_per_step", "baseline_steps"), 1),
    "replicate": 0,
    **dict.fromkeys(("steps_to_target", "last_miss"), 0),
    **dict.fromkeys(("undecided_evaluations", "relative_error"), 0),
    **dict.fromkeys(("train_seconds", "evaluation_seconds", "other_seconds"), 0),
}
"""Number columns and their least values; all are finite."""
_TEXTS: Mapping[str, tuple[str, ...]] = {
    # final: measured at its end alone; branch: begun from a step of another trial
    "role": ("search", "extension", "repeat", "final", "branch"),
    "status": ("COMPLETE", "INFEASIBLE", "INCOMPLETE"),
}
NAMES = {
    *("experiment", "study", "trial", "run", "source", "workload", "workload_version", "dataset"),
    *("model", "optimizer", "schedule", "example_unit", "search", "estimator", "engine", "device"),
    *("target_metric", "stop_reason", "precision", "budget", "search_id"),
}
"""Columns of text that becomes names in tables, labels and folders."""
_LONGEST = 20_000
"""Characters of a name, which labels and tables hold in full."""
_CONTROL = r"[\x00-\x1f\x7f-\x{9f}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"
"""Characters that a terminal or an SVG file would take for more than text (RE2)."""
_RANGES = ("log", "linear", "integer", "reverse_log")


def check(table: pa.Table, where: str) -> None:
    """Refuse rows of studies or trials with impossible values.

    Args:
        table: some or all of the columns.
        where: the name of the table in errors.

    Raises:
        ResultsError: it names the column and the value.
    """
    for name, least in _COUNTS.items():
        if name in table.column_names:
            for value in pc.min_max(table[name]).as_py().values():
                if value is not None and not (least <= value < math.inf):
                    why = f"it must be a number of at least {least}"
                    _refuse(where, name, f"{value:g}", why)
    for name, allowed in _TEXTS.items():
        if name in table.column_names:
            for value in pc.unique(table[name]).drop_null().to_pylist():
                if value not in allowed:
                    _refuse(where, name, repr(value), f"it must be one of {', '.join(allowed)}")
    for name in sorted(NAMES & {*table.column_names}):
        odd = table.filter(pc.match_substring_regex(table[name], _CONTROL))[name]
        if len(odd):
            _refuse(where, name, ascii(odd[0].as_py()[:80]), "it holds control characters")
        longest = pc.max(pc.utf8_length(table[name])).as_py() or 0
        if longest > _LONGEST:
            text = f"a text of {longest:,} characters"
            _refuse(where, name, text, f"it may have at most {_LONGEST:,}")
    for name, fits in _JSON.items():
        if name in table.column_names:
            for text in pc.unique(table[name]).drop_null().to_pylist():
                if text and not fits(parsed(text, name, where)):
                    _refuse(where, name, repr(text[:80]), "it has another shape than that column")


def parsed(text: str, name: str, where: str = "") -> Any:
    """The value of the JSON text of a column.

    Raises:
        ResultsError: it is not JSON; the column is named.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        _refuse(where, name, repr(text[:80]), "it is not JSON")


def mapping(text: str, name: str) -> dict[str, Any]:
    """The mapping of the JSON text of a column.

    Raises:
        ResultsError: it is not a mapping; the column is named.
    """
    value = parsed(text, name)
    if not isinstance(value, dict):
        _refuse("", name, repr(text[:80]), "it is not a mapping")
    return dict(value)


def _refuse(where: str, name: str, value: str, why: str) -> Any:
    place = f"{where}: " if where else ""
    raise ResultsError(f"{place}column {name} holds {value}: {why}", hint=_HINT)


def _is_steps(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(steps, int) for steps in value.values())


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_space(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(isinstance(end, (int, float)) for end in bounds)
        for dimension in value.values()
        if isinstance(dimension, dict)
        for scale, bounds in dimension.items()
        if scale in _RANGES
    )


_JSON: Mapping[str, Callable[[Any], bool]] = {
    **{
        name: lambda value: isinstance(value, dict)
        for name in ("fields", "technique", "layout", "layout_choice", "versions")
    },
    "acts_from": _is_steps,
    **dict.fromkeys(("targets", "notes", "baseline"), _is_texts),
    "search_space": _is_space,
}
"""Columns of JSON text with few different values; others are read where they are used."""
