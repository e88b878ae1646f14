"""The batch size of least loss at each budget as a table: a row a curve and budget, then laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchscale.output import tables
from batchscale.output.tables import Format, ends, notes, render, text

Curve = Mapping[str, Any]


def optimal_batch(curves: Sequence[Curve], format: Format) -> str:
    """The text of ``batchscale regimes --optimal-batch``. JSON is what
    ``batchscale.optimal_batch`` returns; CSV has every number, the law's in each row of its
    curve."""
    if format == "json":
        return tables.answer_json(curves)
    if format == "csv":
        return render([row for curve in curves for row in _flat(curve)], "csv")
    several = len(curves) > 1
    rows = [
        {
            **({"curve": curve["label"]} if several else {}),
            "budget": tables.budget_text(each["budget"]),
            "optimal batch size": ends(each["optimal_batch_size"]),
            "by the law": "" if each["law"]["value"] is None else ends(each["law"]),
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
        lines.append(
            f"{curve['label']}: {sentence}." if several else f"{tables.capitalized(sentence)}."
        )
    lines += notes((curve["label"], curve["notes"]) for curve in curves)
    return "\n".join(lines) + "\n"


def _flat(curve: Curve) -> list[dict[str, Any]]:
    """A row a budget; columns named as those of ``plot optimal-batch``."""
    of_curve = {
        **tables.end_columns("exponent", curve["exponent"]),
        **tables.end_columns("coefficient", curve["coefficient"]),
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
            **tables.end_columns("optimal_batch_size", each["optimal_batch_size"]),
            "best_tested": each["best_tested"],
            "loss": each["loss"],
            "tested": len(each["tested"]),
            "counted": len(each["counted"]),
            **tables.end_columns("law", each["law"]),
            **of_curve,
        }
        for each in curve["optima"]
    ]
