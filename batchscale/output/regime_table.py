"""The regimes as a table: a row a curve, an interval a cell, the notes beneath."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.fit.interval import COLUMNS
from analysis.formatting import units
from batchscale.output import tables
from batchscale.output.tables import Format, ends, notes, render, text

_DEFINED = "critical_batch_size_"
"""Begins the column of a further definition."""
_BEST = "best_batch_size"
"""The column of curves with a small-batch penalty."""
_EFFECT = "search_effect"
"""A factor with its interval, beside the quantities: ``analysis.fit.search_limits``."""
_OTHERS = {
    *(_BEST, _EFFECT, "small_batch_penalty", "crossovers"),
    *("against", "law", "level", "tolerance", "batch_sizes", "trials", "target"),
    *("example_unit", "censored", "estimator", "points", "noise", "best", "rise", "notes"),
    *("note_codes", "slopes", "level_ends", "form"),
}
_ALWAYS = ("optimizer",)
_IMPLIED = ("target", "source", "dataset", "model")
"""Columns that others often imply; then a note does not repeat them."""
_POINTS = {
    "run": "",
    "minimum": ", each point the best of N",
    "best_of_10": ", each point the expected best of 10 of N",
    "median_of_searches": ", each point the median of several bests of N",
    "iso_loss": ", each point interpolated between budgets, of best losses of at least N",
}

Curve = Mapping[str, Any]


def regimes(curves: Sequence[Curve], format: Format) -> str:
    """The text of ``batchscale regimes``. JSON is what the API returns; infinities, which
    it lacks, are text."""
    if format == "json":
        return tables.answer_json(curves)
    if format == "csv":
        return render([_flat(curve) for curve in curves], "csv")
    by_data_set: dict[Any, list[Curve]] = {}
    for curve in curves:
        by_data_set.setdefault(curve.get("dataset"), []).append(curve)
    # Workloads have different columns: in one table most cells would be empty.
    return "\n".join(_table(each, format) for each in by_data_set.values())


def _table(curves: Sequence[Curve], format: Format) -> str:
    """The curves of one data set."""
    curves = _named_techniques(curves)
    answers = {*_OTHERS, *_quantities(curves[0])}
    groups = [n for n in dict.fromkeys(n for curve in curves for n in curve) if n not in answers]
    columns = [
        name
        for name in groups
        if name in _ALWAYS or len({text(curve.get(name)) for curve in curves}) > 1
    ]
    unit = units(curve["example_unit"] for curve in curves)
    penalized = any(curve.get("small_batch_penalty") is not None for curve in curves)
    several = len({curve["estimator"] for curve in curves}) > 1
    rows = [_row(c, columns, unit, penalized=penalized, several=several) for c in curves]
    targets = {curve["target"] for curve in curves}
    if len(targets) > 1:
        rows = [{"target": text(c["target"]), **row} for c, row in zip(curves, rows, strict=True)]
    table = render(rows, format)
    if format != "table":
        return table
    same = [_pair(name, curves[0].get(name)) for name in groups if name not in columns]
    cells = "".join(cell for row in rows for cell in row.values())
    ends = "; ≥ and ≤: bounded, not reached" if "≥" in cells or "≤" in cells else ""
    points = _POINTS[curves[0]["estimator"]] if any(c["trials"] > 1 for c in curves) else ""
    points = ", each point by the estimator of its row" if several else points
    target = "" if len(targets) > 1 else f"target {curves[0]['target'] or 'of the source'}"
    head = ", ".join(filter(None, [*same, target]))
    lines = [
        *([head] if head else []),
        f"{curves[0]['level']:.0%} intervals, tolerance {curves[0]['tolerance']:g}{points}{ends}"
        + ("" if unit == "examples" else f"; batch sizes are of {unit}")
        + ("; by a knee, an assumed form" if curves[0].get("form") == "knee" else ""),
        "",
        table.rstrip("\n"),
        *_sentences(curves),
        *_notes(curves, [*columns, "target"]),
    ]
    return "\n".join(lines) + "\n"


def _named_techniques(curves: Sequence[Curve]) -> list[Curve]:
    """The same with techniques as text, ``clip 1``, without what all curves have."""
    texts = [curve.get("technique") for curve in curves]
    each = [json.loads(text) if isinstance(text, str) else {} for text in texts]
    shared = [key for key in each[0] if all(known.get(key) == each[0][key] for known in each)]
    if all(known == each[0] for known in each):
        return list(curves)
    named = [
        ", ".join(f"{key} {text(known[key])}" for key in known if key not in shared)
        for known in each
    ]
    return [{**curve, "technique": name} for curve, name in zip(curves, named, strict=True)]


def _quantities(curve: Curve) -> list[str]:
    """The keys of ``curve`` that hold an interval; further definitions follow the usual one."""
    further = [name for name in curve if name.startswith(_DEFINED)]
    at = COLUMNS.index("critical_batch_size") + 1
    return [*COLUMNS[:at], *further, *COLUMNS[at:]]


def _cell(curve: Curve, name: str) -> str:
    """A group column as text; beside curves of a source those without one are ``own``."""
    value = curve.get(name)
    return "own" if name == "source" and value is None else text(value)


def _label(curve: Curve, columns: Sequence[str]) -> str:
    """``sgd``, ``sgd, width 64``: a curve's name among the others."""
    cells = {name: _cell(curve, name) for name in columns}
    parts = [cell if name in _ALWAYS else f"{name} {cell}" for name, cell in cells.items() if cell]
    return ", ".join(parts) or "the curve"


def _pair(name: str, value: Any) -> str:
    """``workload digits-mlp``; a technique as its own pairs; nothing for a null."""
    if name == "technique" and isinstance(value, str):
        return ", ".join(f"{key} {text(item)}" for key, item in json.loads(value).items())
    return f"{name.replace('_', ' ')} {text(value)}" if text(value) else ""


def _row(
    curve: Curve, columns: Sequence[str], unit: str, *, penalized: bool, several: bool
) -> dict[str, str]:
    """``penalized``: whether any curve of the table has a small-batch penalty; ``several``: whether
    they are of several estimators."""
    sizes = curve["batch_sizes"]
    # Step Law's models have a field N, their size.
    row = {
        **{f"field {n}" if n == "N" else n: _cell(curve, n) for n in columns},
        **({"estimator": text(curve["estimator"])} if several else {}),
        "batch_sizes": f"{text(min(sizes))}–{text(max(sizes))} ({len(sizes)})" if sizes else "",
        "N": text(curve["trials"]),
    }
    for name in [*([_BEST] if penalized else []), *_quantities(curve)]:
        title = f"min_{unit}" if name == "min_examples" else name
        row[title] = ends(curve[name])
    if penalized and curve.get("small_batch_penalty") is None:
        row[_BEST] = ""
    row["slopes"] = _slopes(curve["slopes"])
    return row


def _slopes(slopes: Mapping[str, Any]) -> str:
    """``-1.00 … -0.03``: the first and the last; the JSON and the CSV have their intervals."""
    first, last = slopes["first"]["value"], slopes["last"]["value"]
    return "" if first is None else f"{first + 0.0:.2f} … {last + 0.0:.2f}"


def _flat(curve: Curve) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in curve.items():
        if name in (_BEST, _EFFECT, *_quantities(curve)):
            flat |= tables.end_columns(name, value)
        elif name == "against":
            flat |= _flat_ratios(value)
        elif name == "law":
            flat |= {
                "law_against": value["against"],
                "law_scatter": value["scatter"],
                **tables.end_columns("law_exponent", value["exponent"]),
                **tables.end_columns("law_coefficient", value["coefficient"]),
            }
        elif name == "crossovers":
            flat[name] = "; ".join(pair["sentence"] for pair in value)
        elif name == "notes":
            flat[name] = " ".join(value)
        elif name == "slopes":
            for end, slope in value.items():
                flat |= tables.end_columns(f"slope_{end}", slope)
        elif name == "level_ends":
            flat |= {f"level_{end}_end": is_level for end, is_level in value.items()}
        elif name in ("points", "note_codes"):
            continue  # in the JSON alone; points are beside each figure too
        else:
            flat[name] = value
    return flat


def _flat_ratios(against: Mapping[str, Any] | None) -> dict[str, Any]:
    """The baseline's label, and each ratio with its ends; empty cells for the baseline itself."""
    flat = {"baseline": None if against is None else against["baseline"]}
    for name in COLUMNS:
        flat |= tables.end_columns(f"{name}_ratio", against and against["ratios"][name])
    return flat


def _sentences(curves: Sequence[Curve]) -> list[str]:
    """The sentences of each curve's comparison, of the laws across curves, and of crossovers, each
    once."""
    sentences = dict.fromkeys(
        curve[key]["sentence"] for key in ("against", "law") for curve in curves if curve.get(key)
    )
    sentences |= {
        pair["sentence"]: None for curve in curves for pair in curve.get("crossovers", ())
    }
    lines = [f"{tables.capitalized(sentence)}." for sentence in sentences]
    return ["", *lines] if lines else []


def _notes(curves: Sequence[Curve], columns: Sequence[str]) -> list[str]:
    mixed = {curve.get("source") is None for curve in curves} == {True, False}
    for name in _IMPLIED:
        if name == "source" and mixed:
            continue
        fewer = [other for other in columns if other != name]
        if len({_label(c, fewer) for c in curves}) == len({_label(c, columns) for c in curves}):
            columns = fewer
    return notes((_label(curve, columns), curve["notes"]) for curve in curves)
