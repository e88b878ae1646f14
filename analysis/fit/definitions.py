"""Critical batch sizes as other authors define them, on the same points and with intervals.

Each fits S = S_min (1 + β/B) by least squares in log steps to every batch size at which the target
was reached: the knee of bend 1, none left out. It is that of McCandlish et al. 2018, and, written
log S = log(a + b/B) with a = S_min and b/a = β, that of Zhang et al. 2024. A critical batch size is
then an increasing function of β, and its interval that of β: the profile likelihood about this
very curve, so that it holds only where the bend is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.fit.knee import BATCH, CRITICAL, Array
from analysis.fit.least_squares import Data, ends, fit, limit
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


def named(name: str) -> Definition:
    """The definition of that name.

    Raises:
        ResultsError: there is none; the hint names the nearest.
    """
    if name not in DEFINITIONS:
        raise ResultsError(
            f"there is no definition {name!r}",
            hint=nearest(name, DEFINITIONS, f"known: {', '.join(DEFINITIONS)}"),
        )
    return DEFINITIONS[name]


def critical_batch_size(
    definition: Definition, sizes: Array, steps: Array, *, level: float = 0.9
) -> tuple[float | None, float | None, float | None]:
    """Value, low and high by ``definition`` from at least three distinct batch sizes and steps to
    target (n,); None for what lies outside the tested batch sizes, and for an open end."""

    def inside(log_beta: float) -> float | None:
        size = definition.of(float(np.exp(log_beta)))
        return size if min(sizes) <= size <= max(sizes) else None

    value, low, high = beta(np.log(sizes)[None], np.log(steps)[None], level=level)
    return inside(value[0]), inside(low[0]), inside(high[0])


def beta(x: Array, y: Array, *, level: float = 0.9) -> tuple[Array, Array, Array]:
    """log β of each row of log batch sizes ``x`` and log steps ``y`` (R, n), and the ends of its
    interval, (R,) each; NaN for an open end."""
    none = np.zeros(len(x), dtype=bool)
    data = Data(x=x, y=y, weight=np.ones_like(x), bent=none, sloped=none, tolerance=0.2)
    params, sse = fit(data)
    kind, at, top = np.full(len(x), CRITICAL), params[:, BATCH], limit(data, sse, level)
    low, high = (
        ends(data, kind, at, params, sse, top, at + sign * np.log(WIDEST))[0] for sign in (-1, 1)
    )
    return at, low, high


def notes(definition: Definition, sizes: Array, form: str) -> list[str]:
    """Notes on a curve's number, from the ``form`` of its points and the batch sizes tested."""
    sentences = []
    if definition.anchor is not None and not min(sizes) <= definition.anchor <= max(sizes):
        sentences.append(
            f"{definition.name} measures from batch size {definition.anchor:g}, "
            "which lies outside the tested ones"
        )
    if form in ("bent knee", "knee with a slope of its own"):
        sentences.append(f"{definition.name} assumes a knee of bend 1, which these points exclude")
    return sentences
