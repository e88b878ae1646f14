"""What pydantic found wrong, as one line with its place and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from experiments.config.yaml_lines import Places
from experiments.errors import ExperimentError, nearest

_IN_GRID = ("batch_size", "optimizer")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a word",
    "dict": "a mapping of keys to values",
    "finite": "a finite number",
}


def complaint(error: ValidationError, known: Iterable[str], places: Places) -> ExperimentError:
    """The first thing wrong: an unknown key before what its absence makes missing."""
    found = error.errors()
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    path = tuple(
        part for part in first["loc"] if isinstance(part, int) or part in (first["loc"][0],)
    )
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        if key in _IN_GRID:
            return places.error(path, f"unknown key {key!r}", f"write it below grid: {key}: …")
        return places.error(path, f"unknown key {key!r}", nearest(key, [*known, *_IN_GRID]))
    if first["type"] == "missing":
        return places.error((), f"no key {key!r}", _MISSING.get(key))
    return places.error(path, f"{key} {_reason(first)}", _HINTS.get(key))


_MISSING = {
    "workload": "for example: workload: digits-mlp, or my_model.py:MyModel",
    "grid": "for example: grid: {batch_size: 8..4096, optimizer: [sgd, momentum]}",
}
_HINTS = {
    "extend": "how many times a search space may be enlarged; 0: never",
    "repeats": "how many fresh seeds the best configurations get; 0: none",
    "name": "letters, digits, dots, dashes and underscores: it names a folder",
    "keep": "a number of trials, or off",
}


def _short(value: Any) -> str:
    """A number that may have hundreds of digits."""
    return repr(value) if abs(value) < 1e30 else f"{float(value):g}"


def _reason(error: Any) -> str:
    context, value = error.get("ctx", {}), error["input"]
    match error["type"]:
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {value!r}"
        case "less_than_equal":
            return f"must be at most {context['le']:,}, not {_short(value)}"
        case "string_too_long":
            return f"is over {context['max_length']} letters long"
        case "greater_than":
            return f"must be over {context['gt']:g}, not {value!r}"
        case "literal_error":
            return f"{value!r} is not one of {context['expected']}"
        case "string_pattern_mismatch":
            return f"{value!r} cannot be a name"
        case kind:
            return f"must be {_KINDS.get(kind.split('_')[0], 'something else')}, not {value!r}"
