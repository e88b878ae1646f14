"""Which curves make a panel: those that differ in some columns alone, a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.curves.groups import label, labels
from analysis.figure_data import FigureData
from analysis.figures.paper import sheet
from analysis.figures.paper.lines import beside, foreign, goal, line_of
from analysis.figures.paper.panel import Panel, normalized, tabulate
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from results.errors import ResultsError

Pair = tuple[Curve, Regimes | None]

ALGORITHM = frozenset({"optimizer", "schedule", "technique"})
_APART = ("experiment", "search")
"""Two answers to one question: a panel each."""
_NAMED = ("workload", "dataset", "model")


@dataclass(frozen=True, kw_only=True)
class Varying:
    """What tells the lines of a panel apart; all else is the same for them."""

    columns: frozenset[str]
    name: str = ""
    """What a panel is called by it: ``width``."""
    goals: bool = False
    """Whether targets may differ within a panel: those of other models and data sets may."""
    none: str = ""
    """What a line is called whose one column is null."""
    must: tuple[str, ...] = ()
    """Columns of which at least one has to differ within a panel; none: any of them all."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A figure of panels by some columns with lines by others."""

    varying: Sequence[Varying] | Callable[[FigureData, Sequence[str]], Sequence[Varying]]
    """What its panels compare; or what says it of the results and the columns of ``--by``."""
    needs: str
    """What there has to be, where there is nothing to draw."""
    hint: str
    least: int = 2
    """Lines that make a panel."""
    over_one: bool = False
    """Whether steps are over those at one batch size that the lines share."""
    published: bool = True
    """Whether published curves stand beside."""

    def draw(self, shown: FigureData, *, ax: Axes | None = None) -> Axes:
        """The panels; see the figure's own file."""
        return sheet.draw(self.panels(shown), ax)

    def numbers(self, shown: FigureData) -> pd.DataFrame:
        """A row a point."""
        return tabulate(self.panels(shown))

    def panels(self, shown: FigureData) -> list[Panel]:
        """What is drawn.

        Raises:
            ResultsError: there is nothing to draw.
        """
        named = shown.query.by or ()
        shown = plain_by(shown)
        pairs = list(zip(shown.curves, shown.regimes, strict=True))
        varying = self.varying(shown, named) if callable(self.varying) else self.varying
        parts = [
            (one, key, some) for one in varying for key, some in grouped(pairs, one, self.least)
        ]
        parts = _once(parts)
        if not parts:
            raise ResultsError(self.needs, hint=self.hint)
        texts = titles([(one.name, key) for one, key, _ in parts])
        made = [
            self._panel(text, one, some, shown)
            for text, (one, _, some) in zip(texts, parts, strict=True)
        ]
        if not self.over_one:
            return made
        scaled = [panel for panel in map(normalized, made) if panel is not None]
        if not scaled:
            raise ResultsError(
                "no batch size at which all curves of a panel reached their targets",
                hint="steps are shown over those at one batch size that all share",
            )
        return scaled

    def _panel(self, title: str, one: Varying, pairs: Sequence[Pair], shown: FigureData) -> Panel:
        mine = [pair for pair in pairs if not foreign(pair[0])] or list(pairs)
        texts = line_labels([curve for curve, _ in mine], one.columns, one.none)
        lines = [
            line_of(curve, found, text) for (curve, found), text in zip(mine, texts, strict=True)
        ]
        rest = [curve for curve, _ in pairs if all(curve is not other for other, _ in mine)]
        others = [*rest, *(shown.published if self.published else [])]
        given = [(curve, text) for (curve, _), text in zip(mine, texts, strict=True)]
        lines += beside(given, others)
        targets = {str(curve.target) for curve, _ in mine if curve.target is not None}
        return Panel(
            title=title,
            lines=tuple(lines),
            measure="steps to target" if not self.over_one else "steps",
            note=next(iter(targets)) if len(targets) == 1 else "",
            unit=units(curve.example_unit for curve, _ in mine),
        )


def plain_by(shown: FigureData) -> FigureData:
    """Where ``--by`` names columns that tell curves apart anyhow, without it: else the training
    algorithm would be minimized over."""
    by = shown.query.by
    if by is None or ALGORITHM & {*by} or not shown.sources:
        return shown
    plain = shown.each_by(None)
    here = {name for curve in plain.curves for name in curve.group}
    return plain if {*by} <= here | {f"fields.{name}" for name in by} else shown


def grouped(
    pairs: Sequence[Pair], varying: Varying, least: int
) -> list[tuple[dict[str, Any], list[Pair]]]:
    """The curves of each panel, and what they have in common.

    Where two searches answer the same question, the panel is divided by experiment.
    """
    found = []
    for key, some in _by(pairs, varying, _APART):
        lines = [_values(curve, varying.columns) for curve, _ in some]
        parts = [(key, some)]
        if len(set(lines)) < len(lines) and not all(foreign(c) for c, _ in some):
            parts = _by(some, varying, ())
        found += [(each, mine) for each, mine in parts if _many(mine, varying) >= least]
    return found


def _many(pairs: Sequence[Pair], varying: Varying) -> int:
    """How many lines of ours, else of others, a panel would have."""
    mine = [curve for curve, _ in pairs if not foreign(curve)] or [curve for curve, _ in pairs]
    apart = [len({str(curve.group.get(name)) for curve in mine}) for name in varying.must]
    if apart and max(apart) < 2:
        return 0
    return len({_values(curve, varying.columns) for curve in mine})


def _by(
    pairs: Sequence[Pair], varying: Varying, apart: Sequence[str]
) -> list[tuple[dict[str, Any], list[Pair]]]:
    """By what the curves are besides what varies and ``apart``, whoever measured them. The curves
    of others, whose goals are what they are, stand with those of ours."""
    parts: dict[tuple[Any, ...], list[Pair]] = {}
    ours = not all(foreign(curve) for curve, _ in pairs)
    for pair in pairs:
        curve = pair[0]
        held = {
            name: value
            for name, value in curve.group.items()
            if name not in varying.columns and name not in apart and name != "source"
        }
        kept = [(name, value) for name, value in held.items() if value is not None]
        goal = None if varying.goals or (ours and foreign(curve)) else str(curve.target)
        parts.setdefault((*kept, ("target", goal)), []).append(pair)
    return [
        ({name: value for name, value in key if name != "target"}, some)
        for key, some in parts.items()
    ]


def _values(curve: Curve, columns: frozenset[str]) -> tuple[str, ...]:
    return tuple(f"{name}={curve.group.get(name)}" for name in sorted(columns | {"source"}))


def _once(
    parts: Sequence[tuple[Varying, dict[str, Any], list[Pair]]],
) -> list[tuple[Varying, dict[str, Any], list[Pair]]]:
    """Each set of curves once, under the first name that has it."""
    seen: list[set[int]] = []
    found = []
    for part in parts:
        mine = {id(curve) for curve, _ in part[2]}
        if mine not in seen:
            seen.append(mine)
            found.append(part)
    return found


def line_labels(curves: Sequence[Curve], columns: frozenset[str], none: str = "") -> list[str]:
    """What tells the lines of a panel apart, with the goal where goals differ."""
    groups = [
        {
            name: none if none and value is None else _said(name, value)
            for name, value in curve.group.items()
            if name in columns
        }
        for curve in curves
    ]
    for name in _NAMED[::-1]:
        # A model's name says its fields too, where it has one of its own.
        if len({str(group.get(name)) for group in groups}) == len(groups) > 1:
            groups = [{name: group.get(name)} for group in groups]
            break
    if all(group.get("model") is not None for group in groups):
        groups = [{**group, "workload": None} for group in groups]
    goals = [goal(curve) for curve in curves]
    return labels(groups, goals if len(set(goals)) > 1 else ())


def _said(name: str, value: Any) -> Any:
    """A field's text with its name: ``widths [64, 64]``."""
    known = name in _NAMED or name in ALGORITHM or name in _APART or name == "source"
    return value if known or not isinstance(value, str) else f"{name.rpartition('.')[2]} {value}"


def titles(keys: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """What each panel is of: its workload, else data set or model, then what tells it from others
    of that."""
    first = [_first(key) for _, key in keys]
    names = list(dict.fromkeys(name for _, key in keys for name in key if name not in _NAMED))
    rest = []
    for (_, key), start in zip(keys, first, strict=True):
        alike = [other for (_, other), its in zip(keys, first, strict=True) if its == start]
        telling = [name for name in names if len({str(one.get(name)) for one in alike}) > 1]
        rest.append(labels_of({name: key[name] for name in telling if name in key}))
    return [
        ", ".join(filter(None, (start, more, f"by {name}" if name else "")))
        for (name, _), start, more in zip(keys, first, rest, strict=True)
    ]


def labels_of(values: Mapping[str, Any]) -> str:
    """Values in a few words."""
    return label(values, values) if values else ""


def _first(key: Mapping[str, Any]) -> str:
    if key.get("workload") is not None:
        return str(key["workload"])
    words = [str(key[name]) for name in ("model", "dataset") if key.get(name) is not None]
    return " on ".join(words)


def fields_of(curves: Sequence[Curve]) -> list[str]:
    """Workload fields that vary, of those that name neither data set nor training."""
    usual = {"source", "experiment", "search", *_NAMED, *ALGORITHM}
    names = dict.fromkeys(name for curve in curves for name in curve.group if name not in usual)
    return [name for name in names if len({str(c.group.get(name)) for c in curves}) > 1]
