"""Techniques against the plain curves: a row a technique, a ratio with its interval a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.curves.groups import ALGORITHM
from analysis.fit.comparisons import ratio_text
from analysis.fit.interval import Interval
from analysis.techniques.pooled import PooledTable
from analysis.techniques.table import RATIOS, Row, Table, p_text
from batchscale.output.tables import Format, answer_json, capitalized, notes, render, text
from results.counts import count


def techniques(table: Table, format: Format) -> str:
    """The text of ``batchscale techniques``. JSON is what the API returns."""
    if format == "json":
        return answer_json(table.to_dicts())
    if format == "csv":
        return render([_flat(each) for each in table.to_dicts()], "csv")
    columns = _varying(table.rows)
    rendered = render([_row(row, columns) for row in table.rows], format)
    bounded = any(
        (ratio.interval.low is None) != (ratio.interval.high is None)
        for row in table.rows
        for ratio in row.ratios.values()
    )
    head = (
        f"ratios to the baseline, {table.level:.0%} intervals; {table.sentence}"
        f"{'; ≥ and ≤: bounded' if bounded else ''}"
    )
    if format == "latex":
        return f"% {head.replace('%', ' %')}\n{rendered}"
    if format == "markdown":
        return f"{rendered}\n{capitalized(head)}.\n"
    several = len({row.baseline for row in table.rows}) > 1
    named = [f"{row.name} over {row.baseline}" if several else row.name for row in table.rows]
    lines = [
        head,
        "",
        rendered.rstrip("\n"),
        "",
        *dict.fromkeys(f"{row.sentence}." for row in table.rows),
        *notes((name, row.notes) for name, row in zip(named, table.rows, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def pooled(table: PooledTable, format: Format) -> str:
    """The text of ``batchscale techniques --pool``. JSON is what the API returns."""
    if format == "json":
        return answer_json(table.to_dicts())
    rows = [
        {
            "technique": name,
            "quantity": quantity,
            "mean ratio": _cell(each.ratio.interval, each.ratio.corrected),
            "another workload": ratio_text(each.prediction),
            "workloads": len(each.workloads),
            "left out": ", ".join(each.left_out),
        }
        for name, row in table.rows.items()
        for quantity, each in row.items()
    ]
    rendered = render(rows, format)
    if format in ("csv", "latex"):
        return rendered
    head = (
        f"geometric means of ratios to the baseline over workloads, {table.level:.0%} intervals; "
        f"p-values are {table.correction.text.format(count(table.compared, 'mean'))}"
    )
    if format == "markdown":
        return f"{rendered}\n{capitalized(head)}.\n"
    return f"{head}\n\n{rendered}"


def _varying(rows: Sequence[Row]) -> list[str]:
    """The columns besides the training algorithm in which the curves differ."""
    names = dict.fromkeys(name for row in rows for name in row.curve.group)
    return [
        name
        for name in names
        if name not in ALGORITHM and len({text(row.curve.group.get(name)) for row in rows}) > 1
    ]


def _row(row: Row, columns: Sequence[str]) -> dict[str, str]:
    return {
        "technique": row.name,
        "baseline": row.baseline or "not clear",
        **{name: text(row.curve.group.get(name)) for name in columns},
        "active": row.active.text,
        **{name: _cell(ratio.interval, ratio.corrected) for name, ratio in row.ratios.items()},
    }


def _cell(interval: Interval, p: float | None) -> str:
    return ratio_text(interval) + ("" if p is None else f", p {p_text(p)}")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "ratios":
            for quantity in RATIOS:
                for end, number in value.get(quantity, {}).items():
                    suffix = "" if end == "value" else f"_{end}"
                    flat[f"{quantity}_ratio{suffix}"] = number
        elif name != "note_codes":
            flat[name] = " ".join(value) if name == "notes" else value
    return flat
