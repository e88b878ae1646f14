"""The three regimes of one curve, located with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit import definitions
from analysis.fit.convex import Points
from analysis.fit.fitted_points import fitted_points
from analysis.fit.interval import BY_EXAMPLES, QUANTITIES, SLOPES, Interval, bounded
from analysis.fit.knee import Knee
from analysis.fit.locate import Ends, Located, locate
from analysis.formatting import interval as text_of
from analysis.formatting import units
from analysis.notes import Note
from results.errors import ResultsError
from results.targets.target import Target

_WIDE = 0.5
"""The share of its steps to target at which a hit is known within a factor of 2 alone."""
_UNEQUAL, _UNEQUAL_FROM, _SIZES_OF_ENDS = 3.0, 0.1, 3
"""How many times the mean share of the other end is unequal, if it is so large; an end is a third
of the batch sizes."""


class TooFewBatchSizesError(ResultsError):
    """A curve needs three distinct batch sizes at which the target was reached."""


@dataclass(frozen=True, kw_only=True)
class Regimes:
    """Where perfect scaling ends and maximal data parallelism begins, with the fit behind them.

    All five quantities belong to the tested range; where an end of it is not level they are bounds,
    without a value (``analysis.fit.locate``).
    """

    group: Mapping[str, Any]
    label: str
    perfect_scaling_until: Interval
    maximal_parallelism_from: Interval
    critical_batch_size: Interval
    min_steps: Interval
    min_examples: Interval
    slopes: Mapping[str, Interval]
    """d log S / d log B: ``first`` and ``last``, between the first two and the last two batch
    sizes, and ``half``, the batch size at which it passes -1/2."""
    small_level: bool
    large_level: bool
    """Whether the small end is level (examples to target) and the large one (steps)."""
    level: float
    tolerance: float
    batch_sizes: tuple[int, ...]
    trials: int
    target: Target | None
    example_unit: str
    """The unit of a batch size: ``image``, ``sequence``."""
    censored: tuple[int, ...]
    estimator: str
    """The estimator of a batch size; ``run`` if the points are repeated runs."""
    points: tuple[Mapping[str, Any], ...]
    """The fitted points and their columns, a row a batch size: ``Curve.tabulate``."""
    noise: float
    """Standard deviation of log steps of a point, as the intervals take it."""
    best: Mapping[str, Any]
    """The knee, a line through the points: ``form`` (a label), ``k``, ``a``, ``min_steps``,
    ``critical_batch_size``, ``noise`` (standard deviation of log steps about it), ``points``."""
    notes: tuple[Note, ...]
    definition: str | None = None
    """The definition of ``defined``, a critical batch size: ``definitions``."""
    defined: Interval | None = None
    grows: bool = False  # as Curve.grows
    best_batch_size: Interval | None = None
    """The batch size of fewest examples, where examples rise again at small batch sizes: perfect
    scaling is then measured from it. None where they do not."""
    small_batch_penalty: float | None = None
    """Then: fitted examples at the smallest batch size over the fewest."""
    rise: float | None = None
    """Fitted steps at the largest batch size over the fewest, where steps rise again at large
    ones."""
    located: Located = field(compare=False, repr=False)
    """The convex curve, from which intervals of other levels follow."""
    knee: Knee = field(compare=False, repr=False)

    @property
    def fitted_over(self) -> tuple[int, int]:
        """The least and the largest batch size at which the target was reached."""
        hit = set(self.batch_sizes) - set(self.censored)
        return min(hit), max(hit)

    def steps(self, batch_sizes: Any) -> np.ndarray:
        """Steps to target on the knee at ``batch_sizes`` (n,); (n,)."""
        return np.exp(self.knee.log_steps(np.log(np.asarray(batch_sizes, dtype=float))))

    def slopes_at(self, batch_sizes: Any) -> np.ndarray:
        """d log S / d log B of the convex curve at ``batch_sizes`` (n,), between their neighbours;
        (n,), NaN outside of the range that was fitted."""
        fit = self.located.fits.best
        first, last = fit.points.span
        reach = float(np.diff(fit.points.x).min()) / 2
        slopes = np.full(len(batch_sizes), np.nan)
        for i, x in enumerate(np.log(np.asarray(batch_sizes, dtype=float))):
            low, high = max(x - reach, first), min(x + reach, last)
            if high > low:
                slopes[i] = (fit.log_steps(high) - fit.log_steps(low)) / (high - low)
        return slopes

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it."""
        return {
            **self.group,
            **{name: getattr(self, name).to_dict() for name in QUANTITIES},
            **defined(self.definition, self.defined),
            "slopes": {name: self.slopes[name].to_dict() for name in SLOPES},
            "level_ends": {"small": self.small_level, "large": self.large_level},
            "level": self.level,
            "tolerance": self.tolerance,
            "batch_sizes": list(self.batch_sizes),
            "trials": self.trials,
            "target": None if self.target is None else str(self.target),
            "example_unit": self.example_unit,
            "censored": list(self.censored),
            "estimator": self.estimator,
            "points": [dict(point) for point in self.points],
            "noise": self.noise,
            "best": dict(self.best),
            **penalized(self.best_batch_size, self.small_batch_penalty),
            "rise": self.rise,
            "notes": list(self.notes),
        }


def defined(definition: str | None, interval: Interval | None) -> dict[str, Any]:
    """A critical batch size by another's definition as ``to_dict`` has it; nothing without one."""
    if definition is None:
        return {}
    return {definitions.PREFIX + definition: (interval or Interval()).to_dict()}


def penalized(best: Interval | None, factor: float | None) -> dict[str, Any]:
    """A small-batch penalty as ``to_dict`` has it; nulls without one."""
    return {"best_batch_size": (best or Interval()).to_dict(), "small_batch_penalty": factor}


def regimes(
    curve: Curve, *, tolerance: float = 0.2, level: float = 0.9, definition: str | None = None
) -> Regimes:
    """Locate the regimes of ``curve`` (see docs/regimes.md for the estimator).

    Args:
        curve: from ``analysis.curves``.
        tolerance: the overhead over perfect scaling, and over the least steps, that a regime
            allows; 0.2 is that of Zhang et al. 2024 (arXiv:2410.21676).
        level: coverage of the intervals.
        definition: also the critical batch size by another's definition, ``zhang2024`` or
            ``mccandlish2018`` (``analysis.fit.definitions``).

    Raises:
        TooFewBatchSizesError: fewer than three distinct batch sizes reached the target.
        ResultsError: a tolerance or a level that cannot be, or no such definition.
    """
    (answer,) = regimes_of([curve], tolerance=tolerance, level=level, definition=definition)
    if isinstance(answer, TooFewBatchSizesError):
        raise answer
    return answer


def regimes_of(
    curves: Sequence[Curve],
    *,
    tolerance: float = 0.2,
    level: float = 0.9,
    definition: str | None = None,
) -> list[Regimes | TooFewBatchSizesError]:
    """``regimes`` of each of many curves, or why it has none.

    Raises:
        ResultsError: as there.
    """
    if definition is not None:
        definitions.named(definition, {curve.example_unit for curve in curves})  # raises
    if not (np.isfinite(tolerance) and 0 < tolerance <= 10):
        raise ResultsError(f"tolerance {tolerance:g} is not above 0 and at most 10", hint="try 0.2")
    if not 0 < level < 1:
        raise ResultsError(f"level {level:g} is not between 0 and 1", hint="try 0.9")
    return [_regimes(curve, tolerance, level, definition) for curve in curves]


def too_few(curve: Curve) -> Note:
    """That a curve of fewer than three batch sizes that reached the target has no regimes. Steps of
    a file, which names no target, are there or not."""
    number = min(len(fitted_points(curve).x), 2)
    sizes = ("no batch size", "one batch size", "two batch sizes")[number]
    have = "have steps" if number == 2 else "has steps"
    if curve.target is not None:
        have = "reached the target"
    return Note("too_few_sizes", sizes=f"{sizes} {have}")


def fitted_notes(curve: Curve, fit: Regimes | TooFewBatchSizesError | None) -> tuple[Note, ...]:
    """The notes on a curve and its fit; without one the first says why."""
    return fit.notes if isinstance(fit, Regimes) else (too_few(curve), *curve.notes)


def _points(curve: Curve) -> Points | TooFewBatchSizesError:
    points = fitted_points(curve)
    if len(points.x) < 3:
        where = f"{curve.label}: " if curve.label else ""
        more = ", raise the budget, or take an easier --target"
        if curve.target is None:
            more = '; whole curves need a target: --target "METRIC < VALUE"' * (not len(points.x))
        return TooFewBatchSizesError(f"{where}{too_few(curve)}", hint=f"add batch sizes{more}")
    return points


def _regimes(
    curve: Curve, tolerance: float, level: float, definition: str | None
) -> Regimes | TooFewBatchSizesError:
    points = _points(curve)
    if isinstance(points, TooFewBatchSizesError):
        return points
    located = locate(points, tolerance=tolerance)
    intervals = {name: _of_logs(located.ends(name, level)) for name in QUANTITIES}
    if curve.grows:
        intervals |= dict.fromkeys(BY_EXAMPLES, Interval())
    slopes = {
        "first": _plain(located.tested("slope_first", level)),
        "last": _plain(located.tested("slope_last", level)),
        "half": _of_logs(located.tested("slope_half", level)),
    }
    factor = None if curve.grows else located.penalty
    best_size = None
    if factor is not None:
        best_size = _of_logs(located.tested("best_batch_size", level))
        best_size = bounded(best_size, np.exp(points.x), np.exp(points.y))
    smooth = _falling(points, located)
    knee = Knee.of(smooth, steep=factor is not None)
    notes = _notes(curve, located, slopes, intervals)
    if best_size is not None and factor is not None:
        first, best = math.exp(points.span[0]), text_of(*best_size.ends)
        counted = units([curve.example_unit])
        notes.insert(0, Note("penalty", first=first, factor=factor, units=counted, best=best))
    notes += curve.notes
    if curve.coarse is not None:
        coarse = _points(curve.coarse)
        if isinstance(coarse, Points):
            notes += _coarse_notes(locate(coarse, tolerance=tolerance), intervals)
    by_other = None
    if definition is not None and not curve.grows:  # both definitions count examples as B·S
        other = definitions.named(definition)
        value, low, high = definitions.critical_batch_size(other, smooth, level=level)
        by_other = Interval(value=value, low=low, high=high)
        notes += definitions.notes(other, smooth, knee.form)
    return Regimes(
        group=curve.group,
        label=curve.label,
        **intervals,
        slopes=slopes,
        small_level=located.small_level,
        large_level=located.large_level,
        level=level,
        tolerance=tolerance,
        batch_sizes=tuple(curve.batch_sizes),
        trials=curve.trials,
        target=curve.target,
        example_unit=curve.example_unit,
        censored=tuple(curve.censored),
        estimator=curve.named,
        points=tuple(curve.tabulate()),
        noise=located.fits.best.noise,
        best=knee.to_dict(),
        notes=tuple(notes),
        definition=definition,
        defined=by_other,
        grows=curve.grows,
        best_batch_size=best_size,
        small_batch_penalty=factor,
        rise=located.rise,
        located=located,
        knee=knee,
    )


def _falling(points: Points, located: Located) -> Points:
    """Those to which a knee is fitted, which cannot rise: where steps rise again at large batch
    sizes, those up to the quickest, if they are three."""
    if located.rise is None:
        return points
    falling = points.x <= located.fits.best.quickest + 1e-9
    return points.take(falling) if falling.sum() >= 3 else points


def _of_logs(ends: Ends) -> Interval:
    """The quantity; a bound, without a value, where an end is open."""
    located = Interval.of_logs(*ends)
    return located if located.reached else replace(located, value=None)


def _plain(ends: Ends) -> Interval:
    value, low, high = (end if math.isfinite(end) else None for end in ends)
    return Interval(value=value, low=low, high=high)


def slope_text(slope: Interval) -> str:
    """``-0.58 [-0.86, -0.49]``."""
    return text_of(*slope.ends, number=lambda end: f"{round(end, 2) + 0.0:.2f}")


def _notes(
    curve: Curve,
    located: Located,
    slopes: Mapping[str, Interval],
    intervals: Mapping[str, Interval],
) -> list[Note]:
    """The notes that follow from the fit alone."""
    points, notes, not_level = located.points, [], ("may not be level", "is not level")
    over = located.most_change
    after = "after two doublings" if located.wide else "over the tested batch sizes"
    if not located.small_level and not curve.grows:
        rises, first = located.change(small=True), slopes["first"]
        never = first.low is not None and first.low > -1 + 1e-6
        slope = slope_text(first) + (", never -1" if never else "")
        end = {"level": not_level[rises > over], "units": units([curve.example_unit])}
        notes.append(Note("small_end", rise=rises - 1, slope=slope, after=after, **end))
    if not located.large_level:
        falls, last = located.change(small=False), slopes["last"]
        end = {"level": not_level[falls > over], "slope": slope_text(last), "after": after}
        notes.append(Note("large_end", fall=1 - 1 / falls, **end))
    if located.rise is not None:
        sides = points, _falling(points, located)
        largest, quickest = (round(math.exp(each.span[1])) for each in sides)
        notes.append(Note("rise", rise=located.rise, last=largest, until=quickest))
    until, begins = intervals["perfect_scaling_until"], intervals["maximal_parallelism_from"]
    if until.value is not None and begins.value is not None and until.value >= begins.value:
        notes.append(Note("overlap"))
    of_points = {
        "relative": curve.relative,
        "mean_of_runs": any(len(point.runs) > 1 for point in curve.points),
        "grows": curve.grows,
    }
    notes += [Note(code) for code, holds in of_points.items() if holds]
    return notes + _bracket_notes(curve)


def _bracket_notes(curve: Curve) -> list[Note]:
    """Whether the evaluations lie far apart, by the steps to target, or less so at one end: a finer
    grid finds earlier chance hits."""
    known = [p for p in curve.points if p.steps and p.last_miss is not None]
    if len(known) < _SIZES_OF_ENDS:
        return []
    # Of a search both are those of its best trial, whatever the estimator makes of the others.
    widths = np.array([1 - (p.last_miss or 0.0) / (p.minimum or p.steps or 1.0) for p in known])
    third = len(known) // _SIZES_OF_ENDS
    small, large = float(widths[:third].mean()), float(widths[-third:].mean())
    notes = []
    if widths.max() > _WIDE:
        at = known[int(widths.argmax())].batch_size
        notes.append(Note("wide_brackets", at=at, width=float(widths.max())))
    if max(small, large) > max(_UNEQUAL * min(small, large), _UNEQUAL_FROM):
        notes.append(Note("unequal_brackets", small=small, large=large))
    return notes


def _coarse_notes(thinned: Located, intervals: Mapping[str, Interval]) -> list[Note]:
    values = {name: math.exp(thinned.profiles[name][0].value) for name in intervals}
    return [
        Note("coarse_grid", quantity=name, value=values[name])
        for name, interval in intervals.items()
        if interval.value is not None and not interval.holds(values[name])
    ]
