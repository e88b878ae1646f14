"""p-values corrected for how many hypotheses are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import Array
from results.errors import ResultsError, nearest


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A procedure for several hypotheses."""

    name: str
    text: str
    """What it is called in tables; ``{}`` is replaced by the number of ratios."""
    of: Callable[[Array], Array]
    """Corrected p-values of p-values (m,)."""


def holm(p_values: Array) -> Array:
    """Holm's step-down procedure (1979, Scand. J. Statist. 6, 65-70): a false positive anywhere is
    as rare as the level says, however the tests depend on each other."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * (count - np.arange(count)))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def false_discovery_rate(p_values: Array) -> Array:
    """Benjamini & Hochberg (1995, doi:10.1111/j.2517-6161.1995.tb02031.x): at most this share of
    the positives is false, on average, where the tests are independent or depend positively."""
    from scipy.stats import false_discovery_control  # slow to import: not at start

    return np.asarray(false_discovery_control(p_values, method="bh"))


CORRECTIONS: Mapping[str, Correction] = {
    each.name: each
    for each in (
        Correction(name="holm", text="corrected for {} by Holm's method", of=holm),
        Correction(
            name="fdr",
            text="corrected for {} by the false discovery rate of Benjamini and Hochberg",
            of=false_discovery_rate,
        ),
        Correction(name="none", text="not corrected for {}", of=lambda p_values: p_values),
    )
}


def named(name: str) -> Correction:
    """The correction of that name.

    Raises:
        ResultsError: there is none.
    """
    if name not in CORRECTIONS:
        raise ResultsError(
            f"there is no correction {name!r}",
            hint=nearest(name, CORRECTIONS, f"known: {', '.join(CORRECTIONS)}"),
        )
    return CORRECTIONS[name]


def corrected(p_values: Sequence[float | None], correction: Correction) -> list[float | None]:
    """Corrected p-values. An unknown one stays unknown, and counts as a hypothesis with p = 1."""
    if not p_values:
        return []
    known = np.array([1.0 if p is None else p for p in p_values])
    pairs = zip(p_values, correction.of(known), strict=True)
    return [None if p is None else float(adjusted) for p, adjusted in pairs]
