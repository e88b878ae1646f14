"""The five quantities and the slopes of a convex curve (``analysis.fit.convex``), with intervals.

All belong to the tested range: ``min_steps`` is the least fitted S, ``min_examples`` the least
fitted E = B·S, ``critical_batch_size`` their ratio, and the ends of the regimes lie where E and S
leave or reach these within the tolerance. An end of the curve is *level* if the fitted change over
its last two doublings is not above the tolerance, and a change of just the tolerance is rejected at
``SURELY``; where less than two doublings were tested, the same of a smaller tolerance in
proportion. Where an end is not level, what rests on it is a bound, without a value: nothing is
extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from analysis.fit.convex import Array, Fit, Fits, Linear, Points, fits
from analysis.fit.interval import BY_EXAMPLES

SURELY = 0.35
"""Level of the interval of an end's change that must leave out the tolerance. By the fitted change
alone up to 12 % of curves that change by 1.5 tolerances would be level; at 0.9 a curve of twelve
points that scatter by 5 % would not."""
TWO_DOUBLINGS = math.log(4.0)
LEAST_PENALTY = 1.1
"""Fitted examples at the smallest batch size over the fewest, from which it is a penalty."""

Ends = tuple[float, float, float]
"""Value, low and high in natural logs (slopes: as they are); NaN: unknown, or open."""
UNKNOWN: Ends = (math.nan, math.nan, math.nan)


class Profile(Protocol):
    """A quantity of a fitted curve: its value, and its interval at any level."""

    @property
    def value(self) -> float: ...

    def ends(self, level: float) -> tuple[float, float]:
        """Low and high; NaN is open."""
        ...


@dataclass(eq=False)
class LinearProfile:
    """Of a quantity that is linear in the curve: the excess is convex, and zero at the estimate."""

    fit: Fit
    quantity: Linear
    within: tuple[float, float] = (-math.inf, math.inf)
    """Values that curves of the family have."""
    _known: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    _ends: dict[float, tuple[float, float]] = field(default_factory=dict)
    """By level: what is known by then brackets an end, so that it would not be the same again."""

    @cached_property
    def value(self) -> float:
        return self.fit.at(self.quantity)

    def ends(self, level: float) -> tuple[float, float]:
        if level not in self._ends:
            self._ends[level] = self._end(-1, level), self._end(1, level)
        return self._ends[level]

    def holds(self, value: float, level: float) -> bool:
        return self.fit.excess(self.quantity, value) <= self.fit.most(level)

    def _end(self, sign: int, level: float) -> float:
        """The outermost value on one side whose excess is at most that of the level.

        The root of the excess is nearly linear in the value (it is that of a quadratic function, in
        pieces): the end is bracketed, then found by linear interpolation of the root.
        """
        most = self.fit.most(level)
        edge = self.within[0 if sign < 0 else 1]
        reach = abs(edge - self.value)
        known = self._known.setdefault(sign, [(0.0, 0.0)])

        def excess(distance: float) -> float:
            for away, above in known:
                if abs(away - distance) < 1e-12:
                    return above
            above = self.fit.excess(self.quantity, self.value + sign * distance)
            known.append((distance, above))
            known.sort()
            return above

        inside, low = max((each for each in known if each[1] <= most), default=(0.0, 0.0))
        outside = [each for each in known if each[1] > most]
        step = 0.05 if inside == 0.0 else 2 * inside
        while not outside:
            step = min(step, reach)
            above = excess(step)
            if above > most:
                outside = [(step, above)]
            elif step >= reach or step > 12:
                return self.value + sign * step
            else:
                inside, low, step = step, above, 2 * step
        out, high = min(outside)
        goal = math.sqrt(most)
        for _ in range(40):
            if out - inside < 1e-4 or not high > low:
                break
            share = 0.5
            if math.isfinite(high):
                lower = math.sqrt(max(low, 0.0))
                share = (goal - lower) / (math.sqrt(high) - lower)
                share = min(max(share, 0.02), 0.98)
            middle = inside + share * (out - inside)
            above = excess(middle)
            if abs(math.sqrt(max(above, 0.0)) - goal) < 1e-3 * goal:
                inside = out = middle
                break
            if above <= most:
                inside, low = middle, above
            else:
                out, high = middle, above
        return self.value + sign * (inside + out) / 2


@dataclass(eq=False)
class PlaceProfile:
    """Of a batch size at which a linear quantity of the curve there passes a given value: those at
    which it is not rejected that it does."""

    fit: Fit
    at: float
    """Where it does on the fitted curve."""
    where: Array
    """Log batch sizes at which it is tested, ascending."""
    there: Callable[[float], Linear]
    passes: float
    _known: dict[int, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return self.at

    def _excess(self, place: int) -> float:
        if place not in self._known:
            there = self.there(float(self.where[place]))
            self._known[place] = self.fit.excess(there, self.passes)
        return self._known[place]

    def _outermost(self, level: float) -> tuple[int, int] | None:
        """The first and the last place that is accepted: of every third, of those about the
        estimate, and of those between an accepted one and the next."""
        count, after = len(self.where), int(np.searchsorted(self.where, self.at))
        most = self.fit.most(level)
        places = sorted({*range(0, count, 3), after - 1, after, count - 1} & {*range(count)})
        accepted = [place for place in places if self._excess(place) <= most]
        if not accepted:
            return None
        first, last = accepted[0], accepted[-1]
        while first > 0 and self._excess(first - 1) <= most:
            first -= 1
        while last < count - 1 and self._excess(last + 1) <= most:
            last += 1
        return first, last

    def ends(self, level: float) -> tuple[float, float]:
        first, last = self.fit.span
        if len(self.where) < 2:
            return math.nan, math.nan
        half = float(self.where[1] - self.where[0]) / 2
        low = high = self.at
        outermost = self._outermost(level)
        if outermost is not None:  # else the estimate alone, so that rising levels are nested
            low = min(float(self.where[outermost[0]]) - half, low)
            high = max(float(self.where[outermost[1]]) + half, high)
        return (
            float(low) if low > first + 1e-9 else math.nan,
            float(high) if high < last - 1e-9 else math.nan,
        )


@dataclass(frozen=True, kw_only=True)
class Located:
    """A fitted curve with its quantities; see ``locate``."""

    fits: Fits
    tolerance: float
    small_level: bool
    large_level: bool
    profiles: Mapping[str, tuple[Profile, ...]]
    """The five quantities, ``best_batch_size``, and the slopes (``slope_first`` …): of each fit."""
    _steps: dict[float, tuple[Profile, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def points(self) -> Points:
        return self.fits.best.points

    @property
    def penalty(self) -> float | None:
        """Fitted examples at the smallest batch size over the fewest, where slopes below -1 are
        sure and that is ``LEAST_PENALTY`` at least."""
        fit = self.fits.best
        if fit.family.low >= -1:
            return None
        factor = math.exp(fit.log_examples(fit.span[0]) - fit.log_examples(fit.cheapest))
        return factor if factor >= LEAST_PENALTY else None

    @property
    def rise(self) -> float | None:
        """Fitted steps at the largest batch size over the fewest, where slopes above 0 are sure."""
        fit = self.fits.best
        if fit.family.high <= 0:
            return None
        return math.exp(fit.log_steps(fit.span[1]) - fit.log_steps(fit.quickest))

    def tested(self, name: str, level: float) -> Ends:
        """A quantity over the tested range, whether or not the ends are level."""
        return _joined(self.profiles[name], level)

    def steps_at(self, x: float, level: float) -> Ends:
        """log S at a log batch size of the tested range."""
        if x not in self._steps:
            self._steps[x] = tuple(
                LinearProfile(fit, fit.family.log_steps(x)) for fit in self.fits.every
            )
        return _joined(self._steps[x], level)

    def steps_ratio(self, x: float, other: float, level: float) -> Ends:
        """log S(x) - log S(other), of log batch sizes of the tested range."""
        if abs(x - other) < 1e-9:
            return 0.0, 0.0, 0.0
        return _joined(
            [
                LinearProfile(fit, fit.family.log_steps(x) - fit.family.log_steps(other))
                for fit in self.fits.every
            ],
            level,
        )

    @property
    def wide(self) -> bool:
        """Whether two doublings were tested."""
        return _part(self.fits.best) >= 1

    @property
    def most_change(self) -> float:
        """The change up to which an end is level; a ratio."""
        return math.exp(_part(self.fits.best) * math.log1p(self.tolerance))

    def change(self, *, small: bool) -> float:
        """By how much fitted examples rise over the first two doublings, or steps fall over the
        last two; a ratio."""
        fit, (first, last) = self.fits.best, self.fits.best.span
        if small:
            near = min(first + TWO_DOUBLINGS, last)
            return math.exp(fit.log_examples(near) - fit.log_examples(first))
        near = max(last - TWO_DOUBLINGS, first)
        return math.exp(fit.log_steps(near) - fit.log_steps(last))

    def ends(self, name: str, level: float) -> Ends:
        """A quantity, or the bound that is known of it."""
        value, low, high = self.tested(name, level)
        small, large = self.small_level, self.large_level
        if name == "min_steps" and not large:
            return math.nan, math.nan, high
        if name in BY_EXAMPLES and not small:
            return math.nan, math.nan, high
        if name == "maximal_parallelism_from" and not large:
            return math.nan, low, math.nan
        if name == "critical_batch_size" and not (small and large):
            if not (small or large):
                return UNKNOWN
            return (math.nan, low, math.nan) if small else (math.nan, math.nan, high)
        return value, low, high


def _joined(profiles: Sequence[Profile], level: float) -> Ends:
    """The value of the first, and an interval that holds those of all."""
    ends = np.array([each.ends(level) for each in profiles])
    # The least and the largest; NaN, an open end, where any is.
    return profiles[0].value, float(ends[:, 0].min()), float(ends[:, 1].max())


def locate(
    points: Points, *, tolerance: float, within: tuple[float, float] | None = None
) -> Located:
    """Fit the curve of three batch sizes at least and locate its regimes.

    Args:
        within: the log batch sizes over which they are located, where not all that is fitted.
    """
    curves = fits(points, within)
    over = math.log1p(tolerance)
    by_fit = [_profiles(fit, over) for fit in curves.every]
    return Located(
        fits=curves,
        tolerance=tolerance,
        small_level=all(_small_level(fit, over) for fit in curves.every),
        large_level=all(_large_level(fit, over) for fit in curves.every),
        profiles={name: tuple(each[name] for each in by_fit) for name in by_fit[0]},
    )


def _small_level(fit: Fit, over: float) -> bool:
    first, last = fit.span
    if fit.cheapest > first + 1e-9:  # examples rise on both sides of it
        return True
    near = min(first + TWO_DOUBLINGS, last)
    return _at_most(fit, fit.family.log_examples(near) - fit.family.log_examples(first), over)


def _large_level(fit: Fit, over: float) -> bool:
    first, last = fit.span
    if fit.quickest < last - 1e-9:
        return True
    near = max(last - TWO_DOUBLINGS, first)
    return _at_most(fit, fit.family.log_steps(near) - fit.family.log_steps(last), over)


def _part(fit: Fit) -> float:
    """The part of two doublings that was tested, 1 at most."""
    return min((fit.span[1] - fit.span[0] + 1e-9) / TWO_DOUBLINGS, 1.0)


def _at_most(fit: Fit, change: Linear, over: float) -> bool:
    over *= _part(fit)
    return fit.at(change) <= over and fit.excess(change, over) > fit.most(SURELY)


def _profiles(fit: Fit, over: float) -> dict[str, Profile]:
    family, (first, last) = fit.family, fit.span
    cheap, quick, grid = fit.cheapest, fit.quickest, fit.grid
    least_examples, least_steps = family.log_examples(cheap), family.log_steps(quick)
    examples = np.array([fit.log_examples(x) for x in grid]) - fit.at(least_examples)
    steps = np.array([fit.log_steps(x) for x in grid]) - fit.at(least_steps)
    until = float(grid[np.flatnonzero(examples <= over)[-1]])
    begins = float(grid[np.flatnonzero(steps <= over)[0]])
    places = grid[::2]
    x = fit.points.x

    def slope(a: float, b: float) -> Linear:
        return (family.log_steps(b) - family.log_steps(a)).over(b - a)

    def slope_at(at: float) -> Linear:
        place = min(max(int(np.searchsorted(x, at, side="right")) - 1, 0), len(x) - 2)
        half = (x[place + 1] - x[place]) / 2
        return slope(max(at - half, first), min(at + half, last))

    slopes = np.array([fit.at(slope_at(float(at))) for at in grid])
    # The middle of a stretch whose slope is -1/2, of which rounding would choose an end.
    passes = grid[np.abs(slopes + 0.5) < 1e-4], grid[slopes >= -0.5][:1], grid[-1:]
    flat = next(each for each in passes if len(each))
    half = float(flat[0] + flat[-1]) / 2
    bounds = family.low, family.high
    return {
        "perfect_scaling_until": PlaceProfile(
            fit, until, places[places >= cheap - 1e-9],
            lambda at: family.log_examples(at) - least_examples, over,
        ),
        "maximal_parallelism_from": PlaceProfile(
            fit, begins, places[places <= quick + 1e-9],
            lambda at: family.log_steps(at) - least_steps, over,
        ),
        "critical_batch_size": LinearProfile(fit, least_examples - least_steps),
        "min_steps": LinearProfile(fit, least_steps),
        "min_examples": LinearProfile(fit, least_examples),
        "best_batch_size": PlaceProfile(fit, cheap, places[1:-1], slope_at, -1.0),
        "slope_first": LinearProfile(fit, slope(x[0], x[1]), bounds),
        "slope_last": LinearProfile(fit, slope(x[-2], x[-1]), bounds),
        "slope_half": PlaceProfile(fit, half, places, slope_at, -0.5),
    }  # fmt: skip
