"""The batch size of least loss at a fixed budget, B_opt(D), and its law B_opt = k · D^p.

At each budget D the loss is a parabola in log B within two doublings of its vertex (at least five
batch sizes where there are so many). The noise of one loss is the scatter about all parabolas, of
all budgets together. The interval of a vertex v is Fieller's (1954): all v at which the slope
b + 2 c v of y = a + b x + c x² is not distinguishable from 0. Where the curvature c is not, the
interval is open. The law is a random-effects line through the vertices that have both ends
(``analysis.fit.laws.line``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.fit.knee import Array
from analysis.fit.laws import LEAST, line
from analysis.fit.regimes import Interval
from analysis.formatting import interval as text_of
from results.counts import agreeing, count, plural
from results.errors import ResultsError

WITHIN = np.log(4.0) * (1 + 1e-9)
"""The distance in log B from the vertex up to which batch sizes count."""
FEWEST = 5
"""Batch sizes that count at least, where there are so many."""
_EXACT = 1e-9
"""The least standard deviation of log B_opt: data without noise have an exact law."""


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The batch size of least loss at one budget, in the units of its ``OptimalBatch``."""

    budget: float
    batch_size: Interval
    """Its value is None outside of the tested batch sizes, as is an end."""
    best: float
    """The tested batch size of least loss."""
    loss: float
    """That loss."""
    tested: tuple[float, ...]
    counted: tuple[float, ...]
    """The batch sizes that the parabola rests on."""


@dataclass(frozen=True, kw_only=True)
class OptimalBatch:
    """The optima of one workload and training algorithm, and their law."""

    group: Mapping[str, Any]
    label: str
    metric: str
    unit: str
    """What batch sizes and budgets are counted in: ``tokens``, ``images``."""
    optima: tuple[Optimum, ...]
    exponent: Interval
    coefficient: Interval
    scatter: float
    """Standard deviation of log B_opt about the law beyond the errors of the optima."""
    band: tuple[float, float, float, float, float] | None
    """For ``law``: mean log D, log B_opt there, its half width, the slope and its half width."""
    noise: float
    """Standard deviation of one loss; NaN where no budget has more than three batch sizes."""
    level: float
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``optimal batch size = 0.58 [0.4, 0.8] · tokens^0.57 [0.55, 0.59], of 6 budgets``."""
        if self.exponent.value is None:
            return f"optimal batch size against {self.unit}: no law"
        budgets = sum(each.batch_size.value is not None for each in self.optima)
        return (
            f"optimal batch size = {_text(self.coefficient, '.2g')} · {self.unit}^"
            f"{_text(self.exponent, '.2f')}, of {count(budgets, 'budget')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.optimal_batch`` returns it."""
        return {
            **self.group,
            "label": self.label,
            "metric": self.metric,
            "unit": self.unit,
            "level": self.level,
            "optima": [self._optimum(each) for each in self.optima],
            "exponent": self.exponent.to_dict(),
            "coefficient": self.coefficient.to_dict(),
            "scatter": self.scatter,
            "noise": None if np.isnan(self.noise) else self.noise,
            "sentence": self.sentence,
            "notes": list(self.notes),
        }

    def _optimum(self, each: Optimum) -> dict[str, Any]:
        law = Interval()
        if self.band is not None:
            value, low, high = (float(end[0]) for end in self.law([each.budget]))
            law = Interval(value=value, low=low, high=high)
        return {
            "budget": each.budget,
            "optimal_batch_size": each.batch_size.to_dict(),
            "law": law.to_dict(),
            "best_tested": each.best,
            "loss": each.loss,
            "tested": list(each.tested),
            "counted": list(each.counted),
        }

    def law(self, budgets: Any) -> tuple[Array, Array, Array]:
        """The law's batch size at ``budgets`` (n,), and the ends of its interval; (n,) each."""
        assert self.band is not None
        middle, at, at_by, slope, slope_by = self.band
        away = np.log(np.asarray(budgets, dtype=float)) - middle
        log, by = at + slope * away, np.hypot(at_by, slope_by * away)
        return np.exp(log), np.exp(log - by), np.exp(log + by)


@dataclass(frozen=True)
class _Parabola:
    """y = a + b u + c u² over u = x - center, by least squares."""

    center: float
    counted: np.ndarray
    coefficients: Array
    spread: Array
    squares: float
    spare: int

    @property
    def vertex(self) -> float:
        _, b, c = self.coefficients
        return self.center - b / (2 * c) if c > 0 else float("nan")

    def fieller(self, variance: float, quantile: float) -> tuple[float, float]:
        """The ends of the vertex's interval; infinite where it is open."""
        _, b, c = self.coefficients
        v = quantile**2 * variance * self.spread
        square = 4 * (c * c - v[2, 2])
        middle, last = 4 * (b * c - v[1, 2]), b * b - v[1, 1]
        if c <= 0 or square <= 0:
            return -np.inf, np.inf
        root = np.sqrt(max(middle**2 - 4 * square * last, 0.0))
        low, high = (-middle - root) / (2 * square), (-middle + root) / (2 * square)
        return self.center + float(low), self.center + float(high)


def optimal_batches(finals: Sequence[FinalLosses], *, level: float = 0.9) -> list[OptimalBatch]:
    """``optimal_batch`` of each of ``finals`` that has a budget with three batch sizes.

    Raises:
        ResultsError: none has.
    """
    fitted = [optimal_batch(final, level=level) for final in finals]
    with_optima = [each for each in fitted if each.optima]
    if not with_optima:
        most = max(len(final.batch_sizes) for final in finals)
        raise ResultsError(
            f"no budget has final losses at three batch sizes (at most {most} in a curve)",
            hint="a batch size of least loss needs runs at several batch sizes with equal budgets; "
            "do columns other than the learning rate differ in each run?",
        )
    return with_optima


def optimal_batch(final: FinalLosses, *, level: float = 0.9) -> OptimalBatch:
    """The optimal batch size of one workload and training algorithm at each budget."""
    from scipy.special import stdtrit

    by_budget = {budget: [p for p in final.points if p.budget == budget]
                 for budget in final.budgets}  # fmt: skip
    fits = {
        budget: _parabola(np.log([p.batch_size for p in points]), _costs(final, points))
        for budget, points in by_budget.items()
        if len(points) >= 3
    }
    spare = sum(fit.spare for fit in fits.values())
    variance = sum(fit.squares for fit in fits.values()) / spare if spare else float("nan")
    quantile = float(stdtrit(spare, 0.5 + level / 2)) if spare else float("nan")
    optima, few = [], 0
    for budget, points in by_budget.items():
        if budget in fits:
            optima.append(_optimum(final, budget, points, fits[budget], variance, quantile))
        else:
            few += 1
    notes = list(final.notes)
    if few:
        notes.append(
            f"{count(few, 'budget')} {agreeing(few, 'have')} fewer than three batch sizes: left out"
        )
    outside = [each for each in optima if not each.batch_size.reached]
    if outside:
        notes.append(
            f"the optimum at {count(len(outside), 'budget')} lies outside of the tested batch "
            "sizes, or is too flat for an interval: the law leaves it out"
        )
    inside = [each for each in optima if each.batch_size.reached]
    exponent, coefficient, scatter, band = Interval(), Interval(), 0.0, None
    if len(inside) < LEAST:
        notes.append(
            f"a law needs {count(LEAST, 'budget')} with an optimum between the tested batch sizes, "
            f"and there are {len(inside)}"
        )
    else:
        exponent, coefficient, scatter, band = _law(inside, quantile, level)
    return OptimalBatch(
        group=final.group,
        label=final.label,
        metric=final.metric,
        unit=plural(final.example_unit),
        optima=tuple(optima),
        exponent=exponent,
        coefficient=coefficient,
        scatter=scatter,
        band=band,
        noise=float(np.sqrt(variance)),
        level=level,
        notes=tuple(notes),
    )


def _costs(final: FinalLosses, points: Sequence[FinalLoss]) -> Array:
    return np.array([final.cost(point.value) for point in points])


def _parabola(x: Array, y: Array) -> _Parabola:
    """The parabola about its vertex: the batch sizes that count move with it."""
    center = float(x[np.argmin(y)])
    seen: set[bytes] = set()
    while True:
        away = np.abs(x - center)
        near = away <= max(WITHIN, float(np.sort(away)[min(FEWEST, len(x)) - 1]))
        fit = _least_squares(x, y, near, center)
        if near.tobytes() in seen or not np.isfinite(fit.vertex):
            return fit
        seen.add(near.tobytes())
        center = float(np.clip(fit.vertex, x.min(), x.max()))


def _least_squares(x: Array, y: Array, near: np.ndarray, center: float) -> _Parabola:
    u = x[near] - center
    design = np.stack([np.ones_like(u), u, u * u], 1)
    coefficients, *_ = np.linalg.lstsq(design, y[near], rcond=None)
    spread = np.linalg.inv(design.T @ design)
    squares = float(np.square(y[near] - design @ coefficients).sum())
    return _Parabola(center, near, coefficients, spread, squares, len(u) - 3)


def _optimum(
    final: FinalLosses,
    budget: float,
    points: Sequence[FinalLoss],
    fit: _Parabola,
    variance: float,
    quantile: float,
) -> Optimum:
    tested = [float(point.batch_size) for point in points]
    value, low, high = fit.vertex, -np.inf, np.inf
    if np.isfinite(variance):
        low, high = fit.fieller(variance, quantile)
    least, most = np.log(tested[0]) - 1e-12, np.log(tested[-1]) + 1e-12
    logs = [end if least <= end <= most else np.nan for end in (value, low, high)]
    if not np.isnan(logs[0]) and not np.isfinite(variance):
        logs = [logs[0], np.nan, np.nan]
    at = int(np.argmin(_costs(final, points)))
    return Optimum(
        budget=budget,
        batch_size=Interval.of_logs(*logs),
        best=tested[at],
        loss=points[at].value,
        tested=tuple(tested),
        counted=tuple(np.array(tested)[fit.counted]),
    )


def _law(
    inside: Sequence[Optimum], quantile: float, level: float
) -> tuple[Interval, Interval, float, tuple[float, float, float, float, float]]:
    x = np.log([each.budget for each in inside])
    ends = np.log(np.array([each.batch_size.ends for each in inside], dtype=np.float64))
    deviation = np.maximum((ends[:, 2] - ends[:, 1]) / (2 * quantile), _EXACT)
    fitted = line(x, ends[:, 0], deviation, level=level)
    # About the weighted mean of log D the errors of height and slope are independent.
    weight = 1 / (deviation**2 + fitted.scatter**2)
    middle = float(weight @ x / weight.sum())
    about = line(x - middle, ends[:, 0], deviation, level=level)
    p, p_by, c, c_by = fitted.slope, fitted.slope_by, fitted.intercept, fitted.intercept_by
    return (
        Interval(value=p, low=p - p_by, high=p + p_by),
        Interval.of_logs(c, c - c_by, c + c_by),
        fitted.scatter,
        (middle, about.intercept, about.intercept_by, about.slope, about.slope_by),
    )


def _text(each: Interval, form: str) -> str:
    return text_of(*each.ends, number=lambda end: f"{float(f'{end:{form}}'):,g}")
