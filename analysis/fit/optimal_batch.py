"""The batch size of least loss at a fixed budget, B_opt(D), and its law B_opt = k · D^p.

At each budget D the loss is a parabola in log B within two doublings of its vertex (at least five
batch sizes where there are so many); the noise of a loss is a power of the budget
(``analysis.fit.budgets.parabolas``). The interval of a vertex v is Fieller's (1954): all v at which
the slope b + 2 c v of y = a + b x + c x² is not distinguishable from 0. Where the curvature c is
not, the interval is open. The law is fitted to the parabolas of all budgets at once, those too flat
for an interval too (``analysis.fit.budgets.law``). Two kinds of budgets are left out: those whose
interval lies wholly outside of the tested batch sizes, since the vertex is an extrapolation, and
those whose best tested batch size is the smallest or the largest, since only the parabola says on
which side of it the minimum lies. Of the latter the optimum is a bound (``Interval.at_edge``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.fit.budgets.law import Line, line
from analysis.fit.budgets.parabolas import Noise, Parabola, noises, parabola, pooled
from analysis.fit.convex import Array
from analysis.fit.interval import Interval
from analysis.fit.laws import LEAST, parameter_text
from analysis.notes import Note
from results.counts import count, plural
from results.errors import ResultsError

LEVEL = 0.9
"""Coverage of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The batch size of least loss at one budget, in the units of its ``OptimalBatch``."""

    budget: float
    batch_size: Interval
    """Its value is None outside of the tested batch sizes, as is an end. A bound where the best
    tested batch size is the smallest or the largest."""
    best: float
    """The tested batch size of least loss."""
    loss: float
    """That loss."""
    tested: tuple[float, ...]
    counted: tuple[float, ...]
    """The batch sizes that the parabola rests on."""
    noise: float = float("nan")
    """Standard deviation of one loss at this budget."""

    @property
    def at_edge(self) -> bool:
        """Whether the best tested batch size is the smallest or the largest."""
        return self.best in (self.tested[0], self.tested[-1])


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
    line: Line | None
    """For ``law``."""
    counted: tuple[float, ...]
    """The budgets that the law rests on."""
    noise: float
    """Standard deviation of one loss, of all budgets; NaN where none has more than three batch
    sizes."""
    notes: tuple[Note, ...] = ()

    @property
    def sentence(self) -> str:
        """``optimal batch size = 0.58 [0.4, 0.8] · tokens^0.57 [0.55, 0.59], of 6 budgets``."""
        if self.exponent.value is None:
            return f"optimal batch size against {self.unit}: no law"
        return (
            f"optimal batch size = {parameter_text(self.coefficient, '.2g')} · {self.unit}^"
            f"{parameter_text(self.exponent, '.2f')}, of {count(len(self.counted), 'budget')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.optimal_batch`` returns it."""
        return {
            **self.group,
            "label": self.label,
            "metric": self.metric,
            "unit": self.unit,
            "level": LEVEL,
            "optima": [self._optimum(each) for each in self.optima],
            "exponent": self.exponent.to_dict(),
            "coefficient": self.coefficient.to_dict(),
            "scatter": self.scatter,
            "noise": None if np.isnan(self.noise) else self.noise,
            "law_budgets": list(self.counted),
            "sentence": self.sentence,
            "notes": list(self.notes),
        }

    def _optimum(self, each: Optimum) -> dict[str, Any]:
        law = Interval()
        if self.line is not None:
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
            "noise": None if np.isnan(each.noise) else each.noise,
        }

    def law(self, budgets: Any) -> tuple[Array, Array, Array]:
        """The law's batch size at ``budgets`` (n,), and the ends of its interval; (n,) each."""
        assert self.line is not None
        value, low, high = self.line.at(np.log(np.asarray(budgets, dtype=float)))
        return np.exp(value), np.exp(low), np.exp(high)


def optimal_batches(finals: Sequence[FinalLosses]) -> list[OptimalBatch]:
    """``optimal_batch`` of each of ``finals`` that has a budget with three batch sizes.

    Raises:
        ResultsError: none has.
    """
    with_optima = [each for final in finals if (each := optimal_batch(final)).optima]
    if not with_optima:
        most = max(len(final.batch_sizes) for final in finals)
        raise ResultsError(
            f"no budget has final losses at three batch sizes (at most {most} in a curve)",
            hint="a batch size of least loss needs runs at several batch sizes with equal budgets; "
            "do columns other than the learning rate differ in each run?",
        )
    return with_optima


def optimal_batch(final: FinalLosses) -> OptimalBatch:
    """The optimal batch size of one workload and training algorithm at each budget."""
    by_budget = {budget: [p for p in final.points if p.budget == budget]
                 for budget in final.budgets}  # fmt: skip
    losses = {
        budget: (np.log([p.batch_size for p in points]), _costs(final, points))
        for budget, points in by_budget.items()
        if len(points) >= 3
    }
    fits = {budget: parabola(*each) for budget, each in losses.items()}
    of_each = noises(np.log([*fits]), list(fits.values()))
    noise = dict(zip(fits, of_each, strict=True))
    optima = [
        _optimum(final, budget, by_budget[budget], fits[budget], noise[budget]) for budget in fits
    ]
    notes = list(final.notes)
    if few := len(by_budget) - len(fits):
        notes.append(Note("narrow_budgets", n=few))
    used = [each for each in optima if _informs(each, fits[each.budget], noise[each.budget])]
    if outside := len(optima) - len(used):
        notes.append(Note("outside", n=outside))
    if flat := sum(not each.batch_size.reached for each in used):
        notes.append(Note("flat", n=flat))
    law = None
    if len(used) < LEAST:
        notes.append(Note("few_optima", needed=LEAST, n=len(used)))
    elif not all(np.isfinite(noise[each.budget].variance) for each in used):
        notes.append(Note("unknown_noise"))
    else:
        law = line(
            np.log([each.budget for each in used]),
            [losses[each.budget] for each in used],
            [fits[each.budget] for each in used],
            level=LEVEL,
        )
        if law is None:
            notes.append(Note("flat_minima"))
    exponent, coefficient = Interval(), Interval()
    if law is not None:
        exponent = Interval(value=law.slope, low=law.slope_ends[0], high=law.slope_ends[1])
        coefficient = Interval.of_logs(*(float(end[0]) for end in law.at(np.zeros(1))))
    return OptimalBatch(
        group=final.group,
        label=final.label,
        metric=final.metric,
        unit=plural(final.example_unit),
        optima=tuple(optima),
        exponent=exponent,
        coefficient=coefficient,
        scatter=0.0 if law is None else law.scatter,
        line=law,
        counted=tuple(each.budget for each in used) if law is not None else (),
        noise=float(np.sqrt(pooled(list(fits.values())).variance)),
        notes=tuple(notes),
    )


def _informs(each: Optimum, fit: Parabola, noise: Noise) -> bool:
    """Whether the vertex may lie between the tested batch sizes, the best of which has two
    neighbours."""
    if each.at_edge:
        return False
    if not fit.coefficients[2] or not np.isfinite(noise.variance):
        return each.batch_size.value is not None
    at = np.linspace(np.log(each.tested[0]), np.log(each.tested[-1]), 101)
    slope, spread = fit.slope(at)
    least = noise.quantile(LEVEL) ** 2 * noise.variance * spread
    # Exact data: the vertex itself.
    inside = fit.coefficients[2] > 0 and at[0] <= fit.vertex <= at[-1]
    return bool(inside or (slope**2 <= least).any())


def _costs(final: FinalLosses, points: Sequence[FinalLoss]) -> Array:
    return np.array([final.cost(point.value) for point in points])


def _optimum(
    final: FinalLosses, budget: float, points: Sequence[FinalLoss], fit: Parabola, noise: Noise
) -> Optimum:
    tested = [float(point.batch_size) for point in points]
    value, low, high = fit.vertex, -np.inf, np.inf
    if np.isfinite(noise.variance):
        low, high = fit.fieller(noise.variance, noise.quantile(LEVEL))
    at = int(np.argmin(_costs(final, points)))
    if at in (0, len(tested) - 1):
        end = float(np.exp(high if at == 0 else low))
        batch_size = Interval.at_edge(end, tested, smallest=at == 0)
    else:
        least, most = np.log(tested[0]) - 1e-12, np.log(tested[-1]) + 1e-12
        logs = [end if least <= end <= most else np.nan for end in (value, low, high)]
        batch_size = Interval.of_logs(*logs)
    return Optimum(
        budget=budget,
        batch_size=batch_size,
        best=tested[at],
        loss=points[at].value,
        noise=float(np.sqrt(noise.variance)),
        tested=tuple(tested),
        counted=tuple(np.array(tested)[fit.counted]),
    )
