"""Curves at equal loss: steps to a loss, interpolated between the budgets of final losses.

At each batch size B the best loss L of each budget D is a point, and the examples E(B) to reach the
target are where the monotone interpolation of L against log D has it: cubic Hermite pieces (PCHIP,
Fritsch & Carlson 1980, doi:10.1137/0717021) through the values, which are first made monotone by
isotonic regression where noise makes them rise. S(B) = E(B) / B.

Its error comes from the local scatter. Each inner budget is predicted from the others; the squared
residual has 1 + w² + (1-w)² noise variances, w the place between its neighbours. Their pooled mean
over all batch sizes is the noise of one loss. At the target it is divided by the slope of L.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.final_losses import FinalLoss, FinalLosses, Numbers
from analysis.curves.points import Point
from analysis.curves.runs import LEVEL
from analysis.formatting import short
from analysis.notes import Note, note_at
from results.errors import ResultsError
from results.targets.target import Target

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator

ISO_LOSS = "iso_loss"
"""The estimator of such points."""


def iso_loss_curves(finals: Sequence[FinalLosses], target: Target) -> list[Curve]:
    """The curve of each of ``finals`` at a loss.

    Raises:
        ResultsError: nowhere are there two budgets between which the loss is the target.
    """
    curves = [_curve(final, target) for final in finals]
    if all(point.steps is None for curve in curves for point in curve.points):
        message = f"no batch size has final losses on both sides of {target} at two budgets"
        raise ResultsError(message, hint=_hint(finals))
    return curves


def noise(final: FinalLosses) -> tuple[float, int]:
    """The standard deviation of one loss, and the residuals that it rests on; NaN of none."""
    squares = []
    for points in _by_size(final).values():
        x, y = _columns(final, points)
        for at in range(1, len(x) - 1) if len(x) > 3 else ():
            others = np.arange(len(x)) != at
            w = (x[at] - x[at - 1]) / (x[at + 1] - x[at - 1])
            residual = y[at] - _interpolation(x[others], _monotone(y[others]))(x[at])
            squares.append(float(residual) ** 2 / (1 + w**2 + (1 - w) ** 2))
    return (float(np.sqrt(np.mean(squares))) if squares else float("nan")), len(squares)


def _curve(final: FinalLosses, target: Target) -> Curve:
    deviation, residuals = noise(final)
    points: list[Point] = []
    before, single = [], []
    for size, losses in _by_size(final).items():
        x, y = _columns(final, losses)
        if len(x) < 2:
            single.append(size)
            continue
        goal = final.cost(target.value)
        if y[0] < goal:
            before.append(size)
            continue
        points.append(_point(size, losses, x, y, goal, deviation, residuals))
    low, high = map(short, (final.budgets[0], final.budgets[-1]))
    notes = [
        Note("equal_loss", n=len(final.budgets), low=low, high=high, unit=final.example_unit),
        *final.notes,
        *note_at("smallest_budget", before),
        *note_at("one_budget", single),
        *note_at("no_budget", [point.batch_size for point in points if point.steps is None]),
        *([] if residuals else [Note("few_budgets")]),
    ]
    return Curve(
        group=final.group,
        label=final.label,
        target=target,
        points=tuple(points),
        trials=min((point.configurations for point in final.points), default=1),
        estimator=ISO_LOSS,
        studies=final.studies,
        example_unit=final.example_unit,
        notes=tuple(notes),
    )


def _point(
    size: int,
    losses: Sequence[FinalLoss],
    x: Numbers,
    y: Numbers,
    goal: float,
    deviation: float,
    residuals: int,
) -> Point:
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    runs = sum(each.configurations for each in losses)
    falling = _monotone(y)
    hit = np.flatnonzero(falling < goal)
    if not len(hit):
        return Point(batch_size=size, steps=None, estimator=ISO_LOSS, trials=runs, ran=runs)
    after = int(hit[0])
    curve = _interpolation(x, falling)
    at = float(brentq(lambda log: float(curve(log)) - goal, x[after - 1], x[after], xtol=1e-13))
    steps = float(np.exp(at)) / size
    t = (at - x[after - 1]) / (x[after] - x[after - 1])
    slope = abs(float(curve.derivative()(at)))
    spread = None
    if residuals and slope > 0:
        by = deviation * np.sqrt(t**2 + (1 - t) ** 2) / slope
        by = float(stdtrit(residuals, 0.5 + LEVEL / 2)) * by
        spread = steps * float(np.exp(-min(by, 50.0))), steps * float(np.exp(min(by, 50.0)))
    nearest = losses[after] if t > 0.5 else losses[after - 1]
    return Point(
        batch_size=size,
        steps=steps,
        estimator=ISO_LOSS,
        minimum=steps,
        hits=len(hit),
        trials=runs,
        ran=runs,
        learning_rate=nearest.learning_rate,
        middles=(steps,),
        spread=spread,
        exchangeable=False,  # it is no order statistic
    )


def _by_size(final: FinalLosses) -> dict[int, list[FinalLoss]]:
    """The points of each batch size, by ascending budget."""
    by_size: dict[int, list[FinalLoss]] = {size: [] for size in final.batch_sizes}
    for point in sorted(final.points, key=lambda point: point.examples):
        by_size[point.batch_size].append(point)
    return by_size


def _columns(final: FinalLosses, points: Sequence[FinalLoss]) -> tuple[Numbers, Numbers]:
    """log D, and the loss for which less is better; (n,) each."""
    x = np.log([point.examples for point in points])
    return x, np.array([final.cost(point.value) for point in points])


def _monotone(y: Numbers) -> Numbers:
    """The nearest values that never rise."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(y, increasing=False).x, dtype=np.float64)


def _interpolation(x: Numbers, y: Numbers) -> PchipInterpolator:
    from scipy.interpolate import PchipInterpolator

    return PchipInterpolator(x, y)


def _hint(finals: Sequence[FinalLosses]) -> str:
    """The losses that all batch sizes of all curves have on both sides, or else any."""
    costs = [_columns(final, each)[1] for final in finals for each in _by_size(final).values()]
    ends = [(float(min(y)), float(max(y))) for y in costs if len(y) > 1]
    if not ends:
        if len({budget for final in finals for budget in final.budgets}) == 1:
            return (
                "one budget gives no steps at equal loss; which curve is best at which batch size: "
                "plot best-at-batch; which batch size of a curve: --optimal-batch"
            )
        return "each batch size needs at least two budgets; is a column a number of each run alone?"
    low, high = max(a for a, _ in ends), min(b for _, b in ends)
    if low >= high:
        low, high = min(a for a, _ in ends), max(b for _, b in ends)
    final = finals[0]
    texts = " to ".join(f"{each:.4g}" for each in sorted((final.cost(low), final.cost(high))))
    sign = "<" if final.lower_is_better else ">"
    return f'a loss between them: --target "{final.metric} {sign} VALUE", with a value of {texts}'
