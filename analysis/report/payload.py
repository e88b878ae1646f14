"""Everything that is on the page, as plain values that go into JSON.

The texts and tables are rendered here too (``html``): a live page replaces its own by them, and
draws its charts from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.formatting import units
from analysis.report import findings, provenance, tables
from analysis.report.best_trials import best_trials
from analysis.report.bibtex import bibtex
from analysis.report.page import contents
from analysis.report.palette import numbered, palette
from analysis.report.panels import Panel, View, panels
from analysis.report.pictures import MOST_DRAWN, picture
from analysis.report.series import overlay, series
from results.counts import count

MOST_TRIALS = 40_000
"""Trials that the search charts hold in all: beyond, they are left out and the page says so."""


def payload(
    data: FigureData, *, title: str | None = None, pictures: bool = False
) -> dict[str, Any]:
    """All of the page; ``analysis.report.page`` makes HTML of it.

    Args:
        title: the heading, instead of one made of the workloads' names.
        pictures: also draw each panel's chart, which is displayed before any script has run.

    Raises:
        ResultsError: no trials, or none that make a curve.
    """
    parts = panels(data)
    styles = numbered(
        [[curve.label for view in part.views for curve in view.curves] for part in parts]
    )
    styled = list(zip(parts, styles, strict=True))
    content: dict[str, Any] = {
        "title": title or _title(parts),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": _about(data, [curve for part in parts for curve in part.views[0].curves]),
        "tolerance": data.query.tolerance,
        "looks": palette(),
        "most_shown": MOST_DRAWN,
        "panels": [
            _panel(i, part, numbers, data.query.baseline)
            for i, (part, numbers) in enumerate(styled)
        ],
        "pictures": {
            f"p{i}": picture(part.views[0], numbers)
            for i, (part, numbers) in enumerate(
                data.each(styled if pictures else [], "panels drawn")
            )
        },
        "best_trials": best_trials(data, (view for part in parts for view in part.views)),
        "published": [overlay(curve) for curve in data.published],
        "experiments": provenance.experiments(data),
        "environment": provenance.environment(data),
        "sources": (sources := provenance.sources(data)),
        "bibtex": bibtex(provenance.program(), sources),
    }
    leave_out_trials(content)
    content["html"] = contents(content)
    return content


def _panel(place: int, panel: Panel, styles: Sequence[int], baseline: str | None) -> dict[str, Any]:
    labels = [curve.label for view in panel.views for curve in view.curves]
    order = dict(zip(labels, styles, strict=True))
    views = [_view(f"p{place}v{i}", view, order, baseline) for i, view in enumerate(panel.views)]
    goals = [{"target": view["target"], "view": view["id"], "reason": None} for view in views]
    goals += [
        {"target": str(goal), "view": None, "reason": reason} for goal, reason in panel.refused
    ]
    return {
        "id": f"p{place}",
        "heading": panel.heading,
        "source": ", ".join(_sources(panel)),
        "workload": panel.workload,
        "dataset": panel.dataset,
        "goals": goals,
        "views": views,
    }


def _view(name: str, view: View, order: dict[str, int], baseline: str | None) -> dict[str, Any]:
    styles = [order[curve.label] for curve in view.curves]
    comparisons = findings.comparisons(view, findings.baseline(view, baseline))
    crossover_pairs = findings.crossover_pairs(view)
    every = [
        tables.regimes(view),
        tables.ratios(view, comparisons),
        tables.crossovers(crossover_pairs),
        tables.points(view),
    ]
    return {
        "id": name,
        "target": None if view.target is None else str(view.target),
        "recorded": view.recorded,
        "curves": [
            series(curve, fit, style)
            for (curve, fit), style in zip(view.pairs, styles, strict=True)
        ],
        "findings": findings.findings(view, styles),
        "penalties": findings.penalties(view),
        "compared": findings.compared(comparisons),
        "crossovers": [f"{pair.sentence}." for pair in crossover_pairs],
        "warnings": findings.warnings(view, comparisons),
        "tables": [table for table in every if table["rows"]],
    }


def _sources(panel: Panel) -> list[str]:
    named = (curve.group.get("source") for curve in panel.views[0].curves)
    return list(dict.fromkeys(str(source) for source in named if source is not None))


def _title(parts: Sequence[Panel]) -> str:
    names = list(dict.fromkeys(part.workload for part in parts if part.workload is not None))
    if len(names) == 1:
        return f"How {names[0]} scales with batch size"
    several = count(len(names), "workload")
    return f"How {several} scale with batch size" if names else "Batch size scaling"


def _about(data: FigureData, curves: Sequence[Curve]) -> dict[str, Any]:
    trials = data.trials
    times = trials["time"].dropna() if "time" in trials else trials.iloc[:0, 0]
    return {
        "sources": list(dict.fromkeys(str(source.root) for source in data.sources)),
        "trials": len(trials),
        "studies": int(trials["study"].nunique()) or int(trials["batch_size"].nunique()),
        "reached": int(trials["steps_to_target"].notna().sum()),
        "infeasible": int(trials["status"].eq("INFEASIBLE").sum()),
        "failed": int(trials["stop_reason"].eq("error").sum()),
        "dominated": int(trials["stop_reason"].eq("dominated").sum()),
        "first": f"{times.min():%Y-%m-%d}" if len(times) else None,
        "last": f"{times.max():%Y-%m-%d}" if len(times) else None,
        "where": data.query.where,
        "examples": units(curve.example_unit for curve in curves),
    }


def leave_out_trials(content: dict[str, Any]) -> None:
    """Leave the single trials out where they are too many for one page."""
    searches = [
        curve["search"]
        for panel in content["panels"]
        for view in panel["views"]
        for curve in view["curves"]
        if curve["search"] is not None
    ]
    many = sum(len(each["rate"]) for search in searches for each in search["tried"])
    content["spared"] = many if many > MOST_TRIALS else None
    for search in searches if many > MOST_TRIALS else ():
        search["tried"] = []
