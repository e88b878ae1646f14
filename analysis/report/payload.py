"""Everything that the page shows, as plain values that go into JSON.

The texts and tables are rendered here too (``html``): a page that renews itself puts them in its
place, and draws its charts from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.fit.comparisons import Comparison
from analysis.formatting import units
from analysis.report import findings, provenance, tables
from analysis.report.bibtex import bibtex
from analysis.report.palette import numbered, palette
from analysis.report.panels import Panel, View, panels
from analysis.report.pictures import MOST_SHOWN, picture
from analysis.report.render import contents
from analysis.report.series import overlay, series
from results.counts import count

MOST_TRIED = 40_000
"""Trials that the search charts hold in all: beyond, they are left out and the page says so."""


def payload(
    material: FigureData, *, title: str | None = None, pictures: bool = False
) -> dict[str, Any]:
    """All of the page; ``analysis.report.page`` makes HTML of it.

    ``pictures``: with a drawing of each panel's chart, there before any script has run.

    Raises:
        ResultsError: no trials, or none that make a curve.
    """
    parts = panels(material)
    looks = numbered([[curve.label for curve in _first(part).curves] for part in parts])
    published = material.published
    drawn = list(zip(parts, looks, strict=True)) if pictures else []
    found: dict[str, Any] = {
        "title": title or _title(parts),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": _about(material, [curve for part in parts for curve in _first(part).curves]),
        "tolerance": material.query.tolerance,
        "looks": palette(),
        "most_shown": MOST_SHOWN,
        "panels": [
            _panel(i, part, look, material.query.baseline)
            for i, (part, look) in enumerate(zip(parts, looks, strict=True))
        ],
        "pictures": {
            f"p{i}": picture(_first(part), look)
            for i, (part, look) in enumerate(material.each(drawn, "panels drawn"))
        },
        "published": [overlay(curve) for curve in published],
        "experiments": provenance.experiments(material),
        "environment": provenance.environment(material),
        "sources": (sources := provenance.sources(material)),
        "bibtex": bibtex(provenance.program(), sources),
    }
    spare(found)
    found["html"] = contents(found)
    return found


def _panel(place: int, panel: Panel, looks: Sequence[int], baseline: str | None) -> dict[str, Any]:
    order = {curve.label: look for curve, look in zip(_first(panel).curves, looks, strict=True)}
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
    looks = [order.setdefault(curve.label, len(order)) for curve in view.curves]
    held: list[Comparison | None] = findings.comparisons(view, findings.baseline(view, baseline))
    shown = [
        series(curve, found, look) for (curve, found), look in zip(view.pairs, looks, strict=True)
    ]
    some = [tables.regimes(view), tables.comparisons(view, held), tables.points(view)]
    return {
        "id": name,
        "target": None if view.target is None else str(view.target),
        "recorded": view.recorded,
        "curves": shown,
        "findings": findings.findings(view, looks),
        "compared": findings.compared(held),
        "warnings": findings.warnings(view, held),
        "tables": [each for each in some if each["rows"]],
    }


def _first(panel: Panel) -> View:
    return panel.views[0]


def _sources(panel: Panel) -> list[str]:
    named = (curve.group.get("source") for curve in _first(panel).curves)
    return list(dict.fromkeys(str(source) for source in named if source is not None))


def _title(parts: Sequence[Panel]) -> str:
    names = list(dict.fromkeys(part.workload for part in parts if part.workload is not None))
    if len(names) == 1:
        return f"How {names[0]} scales with batch size"
    several = count(len(names), "workload")
    return f"How {several} scale with batch size" if names else "Batch size scaling"


def _about(material: FigureData, curves: Sequence[Curve]) -> dict[str, Any]:
    trials = material.trials
    times = trials["time"].dropna() if "time" in trials else trials.iloc[:0, 0]
    return {
        "sources": list(dict.fromkeys(str(source.root) for source in material.sources)),
        "trials": len(trials),
        "studies": int(trials["study"].nunique()) or int(trials["batch_size"].nunique()),
        "reached": int(trials["steps_to_target"].notna().sum()),
        "infeasible": int(trials["status"].eq("INFEASIBLE").sum()),
        "dominated": int(trials["stop_reason"].eq("dominated").sum()),
        "first": f"{times.min():%Y-%m-%d}" if len(times) else None,
        "last": f"{times.max():%Y-%m-%d}" if len(times) else None,
        "where": material.query.where,
        "examples": units(curve.example_unit for curve in curves),
    }


def spare(found: dict[str, Any]) -> None:
    """Leave the single trials out where they are too many for one page."""
    searched = [
        curve["search"]
        for panel in found["panels"]
        for view in panel["views"]
        for curve in view["curves"]
        if curve["search"] is not None
    ]
    many = sum(len(each["rate"]) for search in searched for each in search["tried"])
    found["spared"] = many if many > MOST_TRIED else None
    for search in searched if many > MOST_TRIED else ():
        search["tried"] = []
