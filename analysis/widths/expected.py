"""How wide an interval a search is expected to give, by simulation before it is trained.

Each simulated sweep has a knee and a scatter that are drawn from what is known (``Known``): of a
pilot of the same curve, or of packaged curves (``prior``). Its trials, of which the best and their
brackets count, go through the estimator that measured ones go through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.fit.fitted_points import fitted_points
from analysis.fit.interval import Interval
from analysis.fit.knee import Knee, log_steps
from analysis.fit.locate import locate
from analysis.widths.scatter import GRID, Array, Gaps, best
from analysis.widths.width import width

LEVEL, TOLERANCE = 0.9, 0.2
FEWEST = 8
"""Feasible trials of each batch size that a pilot has."""
ENOUGH = 0.8
"""The share of simulated sweeps within the width at which a plan is expected to give it."""
_DRAWN, _SEED = 200, 2031
_SURE = 0.99
"""Level of the test for a slope of its own at small batches, which all simulated sweeps get."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a curve before a sweep: draws of its knee and of its scatter."""

    knees: Array
    """Parameter vectors of ``analysis.fit.knee``, (m, 4)."""
    scatters: Array
    """Rise and luck, (m, 2)."""
    dimensions: int
    """Tuned dimensions."""

    @classmethod
    def of_pilot(cls, curve: Curve) -> Known | None:
        """From the trials of a curve; None where these are too few: three batch sizes, each with
        ``FEWEST`` feasible trials, and the four best of three batch sizes."""
        points = fitted_points(curve)
        statistics = [point.order_statistics for point in curve.points]
        dimensions = curve.scaled_dimensions or curve.dimensions or 0
        gaps = Gaps.of(statistics, curve.trials, dimensions)
        if len(points.x) < 3 or curve.trials < FEWEST or gaps is None or len(gaps.each) < 3:
            return None
        rng = np.random.default_rng(_SEED)
        places = rng.choice(len(GRID), size=_DRAWN, p=gaps.weights)
        knees = Knee.of(points, level=_SURE).replicates(_DRAWN, _SEED)
        return cls(knees=knees, scatters=GRID[places], dimensions=dimensions)


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a sweep would train."""

    batch_sizes: tuple[int, ...]
    trials: int
    """Of each search."""
    searches: int = 1
    """Of each batch size, with points and seeds of their own: their mean is the point."""

    @property
    def trained(self) -> int:
        """Feasible trials in all."""
        return len(self.batch_sizes) * self.trials * self.searches


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The widths of simulated sweeps of a design."""

    design: Design
    factor: float
    """The median; infinite where most intervals are open; likewise the next two."""
    low: float
    high: float
    """Between these lie 80 % of the sweeps."""
    share: float
    """Of the sweeps that are within the width that is wanted."""
    open: float
    """The share of those whose interval has an open end: the curve is not surely level there."""

    @property
    def enough(self) -> bool:
        return self.share >= ENOUGH


def designs(
    batch_sizes: Sequence[int], trials: Iterable[int], searches: Iterable[int] = (1,)
) -> list[Design]:
    """Alternatives, the fewest trials first: all batch sizes or, of seven at least, every second
    one, from the largest on."""
    sizes = [tuple(batch_sizes)]
    if len(batch_sizes) >= 7:
        sizes.append(tuple(batch_sizes[::-1][::2][::-1]))
    every = [
        Design(batch_sizes=part, trials=n, searches=times)
        for part in sizes
        for n in dict.fromkeys(trials)
        for times in searches
    ]
    return sorted(every, key=lambda each: (each.trained, -len(each.batch_sizes), each.searches))


def expected(
    known: Known,
    every: Iterable[Design],
    quantity: str,
    within: float,
    *,
    ratio: float,
    simulated: int,
) -> Iterator[Expected]:
    """What each design is expected to give, up to one more than the first that is enough.

    Args:
        ratio: of the steps of successive evaluations.
        simulated: sweeps of each.
    """
    reached = False
    for design in every:
        factors = np.array([
            _factor(known, design, quantity, ratio, np.random.default_rng([_SEED, number]))
            for number in range(simulated)
        ])  # fmt: skip
        low, middle, high = np.quantile(factors, [0.1, 0.5, 0.9], method="inverted_cdf")
        share = float((factors <= within).mean())
        made = Expected(
            design=design, factor=float(middle), low=float(low), high=float(high), share=share,
            open=float(np.isinf(factors).mean()),
        )  # fmt: skip
        yield made
        if reached:
            return
        reached = made.enough


def _factor(
    known: Known, design: Design, quantity: str, ratio: float, rng: np.random.Generator
) -> float:
    """The width of one simulated sweep."""
    place = int(rng.integers(len(known.knees)))
    x = np.log(np.array(design.batch_sizes, dtype=float))
    shape = (design.searches, len(x))
    over = best(rng, shape, design.trials, known.dimensions, known.scatters[place])
    steps = np.exp(log_steps(x, known.knees[place])[:, None] + over)
    # The target is passed anywhere between two evaluations, which are whole steps.
    hits = np.ceil(steps * ratio ** rng.random(steps.shape))
    points = tuple(
        _point(size, hits[:, at], design.trials, ratio)
        for at, size in enumerate(design.batch_sizes)
    )
    curve = Curve(
        group={}, label="", target=None, points=points, trials=design.trials,
        dimensions=known.dimensions,
    )  # fmt: skip
    located = locate(fitted_points(curve), tolerance=TOLERANCE)
    return width(Interval.of_logs(*located.ends(quantity, LEVEL)))


def _point(size: int, hits: Array, trials: int, ratio: float) -> Point:
    """The point of the order statistics of some searches, (searches, 4)."""
    misses = np.minimum(np.floor(hits[:, 0] / ratio), hits[:, 0] - 1)
    least: Any = hits[:, 0]
    nearest = int(np.abs(np.log(least) - np.log(least).mean()).argmin())
    return Point(
        batch_size=size,
        steps=math.exp(np.log(least).mean()),
        minimum=float(least[nearest]),
        last_miss=float(misses[nearest]),
        fourth=float(hits[nearest, -1]),
        middles=tuple((misses + 1 + least) / 2),
        trials=trials,
    )
