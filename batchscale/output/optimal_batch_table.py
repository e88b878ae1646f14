"""The batch size of least loss at each budget as a table: a row a curve and budget, then laws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.formatting import interval
from batchscale.output.tables import Format, as_json, notes, render, text

Curve = Mapping[str, Any]
_INTERVALS = ("exponent", "coefficient")


def optimal_batch(curves: Sequence[Curve], format: Format) -> str:
    """The text of ``batchscale regimes --optimal-batch``. JSON is what
    ``batchscale.optimal_batch`` returns; CSV has every number, the law's in each row of its
    curve."""
    if format == "json":
        return json.dumps(as_json(list(curves)), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return render([row for curve in curves for row in _flat(curve)], "csv")
    several = len(curves) > 1
    rows = [
        {
            **({"curve": curve["label"]} if several else {}),
            "budget": f"{each['budget']:,.4g}" if each["budget"] < 1e4 else f"{each['budget']:.3g}",
            "optimal batch size": _ends(each["optimal_batch_size"]),
            "by the law": "" if each["law"]["value"] is None else _ends(each["law"]),
            "best tested": text(each["best_tested"]),
            curve["metric"]: text(each["loss"]),
            "batch sizes": f"{len(each['tested'])}, {len(each['counted'])} in the fit",
        }
        for curve in curves
        for each in curve["optima"]
    ]
    table = render(rows, format)
    if format != "table":
        return table
    units = " and ".join(dict.fromkeys(curve["unit"] for curve in curves))
    lines = [
        f"the batch size of least {curves[0]['metric']} at each budget, both in {units}",
        f"{curves[0]['level']:.0%} intervals; ≥ and ≤: bounded, not reached",
        "",
        table.rstrip("\n"),
        "",
    ]
    for curve in curves:
        sentence = curve["sentence"]
        whose = f"{curve['label']}: " if several else ""
        lines.append(f"{whose}{sentence}." if several else f"{sentence[0].upper()}{sentence[1:]}.")
    lines += notes((curve["label"], curve["notes"]) for curve in curves)
    return "\n".join(lines) + "\n"


def _ends(each: Mapping[str, float | None]) -> str:
    return interval(each["value"], each["low"], each["high"])


def _flat(curve: Curve) -> list[dict[str, Any]]:
    """A row a budget; columns named as those of ``plot optimal-batch``."""
    law: dict[str, Any] = {}
    for name in _INTERVALS:
        law |= _columns(name, curve[name])
    rest = {
        "scatter": curve["scatter"],
        "noise": curve["noise"],
        "notes": "; ".join(curve["notes"]),
    }
    return [
        {
            "curve": curve["label"],
            "metric": curve["metric"],
            "unit": curve["unit"],
            "budget": each["budget"],
            **_columns("optimal_batch_size", each["optimal_batch_size"]),
            "best_tested": each["best_tested"],
            "loss": each["loss"],
            "tested": len(each["tested"]),
            "counted": len(each["counted"]),
            **_columns("law", each["law"]),
            **law,
            **rest,
        }
        for each in curve["optima"]
    ]


def _columns(name: str, each: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: each["value"], f"{name}_low": each["low"], f"{name}_high": each["high"]}
