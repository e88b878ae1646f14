"""Critical batch sizes as other authors define them, on the same points and with intervals.

Each fits S = S_min (1 + β/B) by least squares in log steps to every batch size at which the target
was reached: the knee of bend 1, none left out. It is that of McCandlish et al. 2018, and, written
log S = log(a + b/B) with a = S_min and b/a = β, that of Zhang et al. 2024. A critical batch size is
then an increasing function of β, and its interval that of β: the profile likelihood about this
very curve, so that it holds only where the bend is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import EXACT, Points
from analysis.fit.knee import BATCH, fit
from analysis.notes import Note
from results.errors import ResultsError, nearest

WIDEST = 100.0
"""Largest distance of β's ends from its estimate; beyond it, an end is open."""

PREFIX = "critical_batch_size_"
"""Prefix of a definition's name in columns of tables and keys of JSON."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One published definition."""

    name: str
    source: str
    of: Callable[[float], float]
    """The critical batch size, in examples, as a function of β."""
    anchor: float | None = None
    """A batch size from which the definition measures."""


DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition(
            name="mccandlish2018",
            source="McCandlish et al. 2018 (arXiv:1812.06162): E_min/S_min, where "
            "(S/S_min - 1)(E/E_min - 1) = 1",
            of=lambda beta: beta,
        ),
        Definition(
            name="zhang2024",
            source="Zhang et al. 2024 (arXiv:2410.21676): 20 % more examples than at B0 = 256, "
            "(r - 1) β + r B0 with r = 1.2",
            of=lambda beta: 0.2 * beta + 1.2 * 256,
            anchor=256,
        ),
    )
}


def named(name: str, units: Collection[str] = ()) -> Definition:
    """The definition of that name.

    Raises:
        ResultsError: there is none; the hint names the nearest. Or it measures from a number of
            sequences, and ``units`` has tokens.
    """
    if name not in DEFINITIONS:
        raise ResultsError(
            f"there is no definition {name!r}",
            hint=nearest(name, DEFINITIONS, f"known: {', '.join(DEFINITIONS)}"),
        )
    if "token" in units and (anchor := DEFINITIONS[name].anchor) is not None:
        message = f"{name} measures from {anchor:g} sequences, and the unit is tokens"
        raise ResultsError(message, hint="give sequences, or --definition mccandlish2018")
    return DEFINITIONS[name]


def critical_batch_size(
    definition: Definition, points: Points, *, level: float = 0.9
) -> tuple[float | None, float | None, float | None]:
    """Value, low and high by ``definition`` from three points at least; None for what lies outside
    the tested batch sizes, and for an open end."""
    first, last = (float(np.exp(end)) for end in points.span)

    def inside(log_beta: float) -> float | None:
        size = definition.of(float(np.exp(log_beta)))
        return size if first <= size <= last else None

    value, low, high = beta(points, level=level)
    return inside(value), inside(low), inside(high)


def beta(points: Points, *, level: float = 0.9) -> tuple[float, float, float]:
    """log β and the ends of its interval; NaN for an open end.

    For a given β the curve is a constant beside log(1 + β/B), so that the profile is a function of
    β alone. The interval holds the β whose sum of squares is at most SSE (1 + F(level; 1, n - 2) /
    (n - 2)) (Bates & Watts 1988, Nonlinear Regression Analysis, §6.1).
    """
    from scipy.optimize import brentq  # a third of a second to import: not at start
    from scipy.special import fdtri

    params, sums = fit(points.x[None], points.y[None], points.weights, bent=False)
    at, count = float(params[0, BATCH]), len(points.x)

    def squares(log_beta: float) -> float:
        off = points.y - np.logaddexp(0.0, log_beta - points.x)
        level_of = float(points.weights @ off) / float(points.weights.sum())
        return float(points.weights @ np.square(off - level_of))

    least = max(float(sums[0]), count * EXACT**2)
    top = least + least * float(fdtri(1.0, count - 2, level)) / (count - 2)

    def end(edge: float) -> float:
        if squares(edge) <= top:
            return float("nan")
        return float(brentq(lambda log_beta: squares(log_beta) - top, at, edge, xtol=1e-9))

    return at, end(at - np.log(WIDEST)), end(at + np.log(WIDEST))


def notes(definition: Definition, points: Points, form: str) -> list[Note]:
    """Notes on a curve's number, from the ``form`` of its points."""
    name, anchor, (first, last) = definition.name, definition.anchor, np.exp(points.span)
    notes = []
    if anchor is not None and not first <= anchor * (1 + 1e-9) <= last * (1 + 1e-6):
        notes.append(Note("anchor", name=name, anchor=anchor))
    if form in ("bent knee", "knee with a slope of its own"):
        notes.append(Note("other_bend", name=name))
    return notes
