"""p-values corrected for how many hypotheses are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.fit.convex import Array
from results.errors import ResultsError, nearest


@dataclass(frozen=True, kw_only=True)
class Controls:
    """Which ratios share a control, and how much of their errors is the control's; (m,) each."""

    group: NDArray[np.intp]
    """Ratios of one number are over one and the same quantity of one baseline."""
    shared: Array
    """The share of the variance of the log ratio that is the baseline's, 0 to 1."""

    @classmethod
    def none(cls, count: int) -> Controls:
        """``count`` ratios, each with a control of its own."""
        return cls(group=np.arange(count), shared=np.zeros(count))


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A procedure for several hypotheses."""

    name: str
    text: str
    """What it is called in tables; ``{}`` is replaced by the number of ratios."""
    of: Callable[[Array, Controls], Array]
    """Corrected p-values of p-values (m,) and what their ratios share."""


def holm(p_values: Array, _: Controls | None = None) -> Array:
    """Holm's step-down procedure (1979, Scand. J. Statist. 6, 65-70): a false positive anywhere is
    as rare as the level says, however the tests depend on each other."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * (count - np.arange(count)))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def false_discovery_rate(p_values: Array, _: Controls | None = None) -> Array:
    """Benjamini & Hochberg (1995, doi:10.1111/j.2517-6161.1995.tb02031.x): at most this share of
    the positives is false, on average, where the tests are independent or depend positively."""
    from scipy.stats import false_discovery_control  # slow to import: not at start

    return np.asarray(false_discovery_control(p_values, method="bh"))


def dunnett(p_values: Array, controls: Controls) -> Array:
    """Many-to-one comparisons after Dunnett (1955, doi:10.1080/01621459.1955.10501294), step down.

    Errors of log ratios d_i = q_i - q_0 over one control are correlated by √(λ_i λ_j), where λ is
    the control's share of the variance. With normal errors, a common Z_0 and Z_i of their own,
    T_i = √λ_i Z_0 + √(1-λ_i) Z_i, the least of a group's p-values is at most p with the probability

        P(p) = 1 - ∫ φ(z) Π_i [Φ((c - √λ_i z) / √(1-λ_i)) - Φ((-c - √λ_i z) / √(1-λ_i))] dz,

    c = Φ⁻¹(1 - p/2). Of groups with controls (or quantities) of their own, which may depend in any
    way, the P are added. Stepping down, each p-value is corrected for itself and all larger ones
    (Marcus, Peritz & Gabriel 1976). It is never more than Holm's, which does not use the
    correlation: a false positive anywhere is as rare as the level says.
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.empty(len(p_values))
    for step, i in enumerate(order):
        rest = order[step:]
        groups = controls.group[rest]
        steps[step] = sum(
            _least(float(p_values[i]), controls.shared[rest[groups == group]])
            for group in np.unique(groups)
        )
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


_Z = np.linspace(-8, 8, 641)
"""Where the integral is taken: by the trapezoidal rule, which is exact to rounding for what is
smooth at this distance."""
_MOST_SHARED = 0.99
"""Beyond it the integrand is steeper than the points of ``_Z`` show."""


def _least(p: float, shared: Array) -> float:
    """The probability that the least of p-values over one control, (m,), is at most ``p``."""
    from scipy.special import ndtr, ndtri  # slow to import: not at start

    if len(shared) == 1 or p >= 1:
        return p
    part, times = np.unique(np.minimum(shared, _MOST_SHARED), return_counts=True)
    critical, common = -ndtri(p / 2), np.sqrt(part)[:, None] * _Z
    own = np.sqrt(1 - part)[:, None]
    inside = ndtr((critical - common) / own) - ndtr((-critical - common) / own)
    density = np.exp(-(_Z**2) / 2) / np.sqrt(2 * np.pi)
    above = density * np.prod(inside ** times[:, None], axis=0)
    return min(1.0, max(p, 1 - float(above.sum() * (_Z[1] - _Z[0]))))


CORRECTIONS: Mapping[str, Correction] = {
    each.name: each
    for each in (
        Correction(name="holm", text="corrected for {} by Holm's method", of=holm),
        Correction(
            name="fdr",
            text="corrected for {} by the false discovery rate of Benjamini and Hochberg",
            of=false_discovery_rate,
        ),
        Correction(name="dunnett", text="corrected for {} by Dunnett's method", of=dunnett),
        Correction(name="none", text="not corrected for {}", of=lambda p_values, _: p_values),
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


def corrected(
    p_values: Sequence[float | None], correction: Correction, controls: Controls | None = None
) -> list[float | None]:
    """Corrected p-values. An unknown one stays unknown, and counts as a hypothesis with p = 1.

    ``controls``: which of them share a control; by default none does.
    """
    if not p_values:
        return []
    known = np.array([1.0 if p is None else p for p in p_values])
    adjusted_values = correction.of(known, controls or Controls.none(len(known)))
    pairs = zip(p_values, adjusted_values, strict=True)
    return [None if p is None else float(adjusted) for p, adjusted in pairs]
