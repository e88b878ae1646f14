"""Curves against a baseline: ratios of their quantities, with intervals.

Quantities are compared in natural logs, where a ratio is a difference d = q₁ - q₂. Its interval
comes from the two curves' own profile-likelihood intervals [l, u] by the method of variance
estimates recovery (Zou & Donner 2008, doi:10.1002/sim.2931):

    low = d - √((q₁ - l₁)² + (u₂ - q₂)²)        high = d + √((u₁ - q₁)² + (q₂ - l₂)²)

Taken as a parabola on either side of its estimate, each curve's profile is one unit above its
least at its ends, and these are the d at which the sum of the two profiles, minimized over q₂, is
one unit above its least: the profile likelihood of the ratio, with a noise level for each curve. It
assumes that the two curves' errors are independent.

Where a quantity has no value there is no centre to measure from: the ends are then l₁ - u₂ and
u₁ - l₂, which is wider. An end that needs an open one is open.

The five quantities belong to the tested range, so that two curves are compared over the batch sizes
between which both were tested: where an end is not level that is what the ratio means, and the
sentence says so. The ratio of the fitted steps at each batch size that both have needs no form and
no end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.curves.curve import Curve, is_baseline
from analysis.fit.convex import Array
from analysis.fit.interval import QUANTITIES, Interval
from analysis.fit.locate import Located, locate
from analysis.fit.regimes import Regimes
from analysis.formatting import interval as text_of
from analysis.notes import Note

Ends = tuple[Array, Array, Array]
"""Value, low and high in natural logs, NaN where unknown or open; all of one shape."""

_CRITICAL = ("critical batch size", "critical batch sizes")
OF_RANGE = (
    "ratio of the fewest examples to the fewest steps",
    "ratios of the fewest examples to the fewest steps",
)
"""What is compared where an end is not level, and a curve's critical batch size only bounded."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One curve against the baseline: ratios of its quantities over the baseline's."""

    label: str
    baseline: str | None
    """The baseline's label; None if several curves could be the baseline (``notes`` name them)."""
    ratios: Mapping[str, Interval]
    """Ratio of each of the five quantities; ``critical_batch_size`` above 1 extends perfect
    scaling."""
    steps: Mapping[int, Interval] = field(default_factory=dict)
    """Ratio of the fitted steps at each batch size that both curves have."""
    within: tuple[int, int] | None = None
    """The batch sizes, least and largest, over which the quantities are compared; None where they
    are compared as each curve gives them."""
    measured_alike: bool = True
    """Whether both curves' steps to target are of one quantity; else they are not compared."""
    level_ends: bool = True
    """Whether both ends of both curves are level: else the ratios are of this range alone."""
    notes: tuple[Note, ...] = ()

    @property
    def of_range(self) -> bool:
        """Whether ratios are of the batch sizes ``within``, and ``OF_RANGE`` is compared."""
        return self.within is not None and not self.level_ends

    @property
    def sentence(self) -> str:
        """The comparison as text: "the critical batch size of momentum is 3.1 [2.4, 4.0] times that
        of sgd; at the plateau momentum takes 2.0 [1.7, 2.3] times fewer steps"."""
        if not self.measured_alike:
            return f"no comparison of {self.label}: the baseline was measured otherwise"
        if self.baseline is None:
            return f"the baseline of {self.label} is not clear"
        critical, plateau = self.ratios["critical_batch_size"], self.ratios["min_steps"]
        quantity, quantities = OF_RANGE if self.of_range else _CRITICAL
        both = f"the {quantities} of {self.label} and {self.baseline}"
        if (critical.low or 1) > 1 or (critical.high or 1) < 1:
            scaling = (
                f"the {quantity} of {self.label} is {ratio_text(critical)} times that of "
                f"{self.baseline}"
            )
        elif critical.low is None and critical.high is None:
            scaling = f"{both} are not known well enough"
        else:
            scaling = f"{both} cannot be distinguished: their ratio is {ratio_text(critical)}"
        if self.within is not None and self.of_range:
            first, last = self.within
            scaling = f"over batch sizes {first:,} to {last:,}, {scaling}"
            if not self.steps:
                return scaling
            first, last = min(self.steps), max(self.steps)
            at_last = f" and {ratio_text(self.steps[last])} times at {last:,}" * (first < last)
            return (
                f"{scaling}; {self.label} takes {ratio_text(self.steps[first])} times the steps of "
                f"{self.baseline} at batch size {first:,}{at_last}"
            )
        return "; ".join(filter(None, (scaling, _plateau(self.label, plateau))))

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``against``."""
        return {
            "baseline": self.baseline,
            "ratios": {name: ratio.to_dict() for name, ratio in self.ratios.items()},
            "steps": [
                {"batch_size": size, **ratio.to_dict()} for size, ratio in self.steps.items()
            ],
            "within": None if self.within is None else list(self.within),
            "level_ends": self.level_ends,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two curves as they are compared."""

    first: Regimes
    second: Regimes
    fits: tuple[Located, Located] | None
    """Over the batch sizes between which both were tested; None where fewer than three points of a
    curve are there: then the quantities are compared as each curve gives them."""

    @classmethod
    def of(cls, first: Regimes, second: Regimes) -> Pair:
        points = first.located.points, second.located.points
        low = max(each.span[0] for each in points)
        high = min(each.span[1] for each in points)
        inside = [_about(each.x, low, high) for each in points]
        if all(mask.all() for mask in inside) and points[0].span == points[1].span:
            return cls(first=first, second=second, fits=(first.located, second.located))
        if high <= low or any(mask.sum() < 3 for mask in inside):
            return cls(first=first, second=second, fits=None)
        fits = [
            locate(each.take(mask), tolerance=first.tolerance, within=(low, high))
            for each, mask in zip(points, inside, strict=True)
        ]
        return cls(first=first, second=second, fits=(fits[0], fits[1]))

    @property
    def within(self) -> tuple[int, int] | None:
        if self.fits is None:
            return None
        low, high = self.fits[0].fits.best.span
        return round(float(np.exp(low))), round(float(np.exp(high)))

    @property
    def level_ends(self) -> bool:
        return self.fits is not None and all(
            each.small_level and each.large_level for each in self.fits
        )

    def ends(self, name: str, levels: Sequence[float]) -> tuple[Ends, Ends]:
        """A quantity of both curves at each of ``levels``, (L,) each."""
        sides = []
        for i, regimes in enumerate((self.first, self.second)):
            fit = regimes.located if self.fits is None else self.fits[i]
            read = fit.ends if self.fits is None else fit.tested
            unknown = getattr(regimes, name) == Interval() and regimes.grows
            each = [(np.nan,) * 3 if unknown else read(name, level) for level in levels]
            value, low, high = (np.array(column) for column in zip(*each, strict=True))
            sides.append((value, low, high))
        return sides[0], sides[1]

    def steps(self, level: float) -> dict[int, Interval]:
        """``Comparison.steps``."""
        if self.fits is None:
            return {}
        first, second = self.fits
        common = [
            float(x) for x in first.points.x if np.abs(second.points.x - x).min(initial=9.0) < 1e-9
        ]
        ratios = {}
        for x in common:
            here = [tuple(map(np.array, each.steps_at(x, level))) for each in (first, second)]
            ends = log_ratio(here[0], here[1])  # type: ignore[arg-type]
            ratios[round(float(np.exp(x)))] = Interval.of_logs(*map(float, ends))
        return ratios


def _about(x: Array, low: float, high: float) -> NDArray[np.bool_]:
    """Which of ascending ``x`` lie from ``low`` to ``high``, or are the next beyond an end where
    none is."""
    first = int(np.searchsorted(x, low + 1e-9, side="right")) - 1
    last = int(np.searchsorted(x, high - 1e-9, side="left"))
    places = np.arange(len(x))
    return (places >= first) & (places <= last)


def log_ratio(first: Ends, second: Ends) -> Ends:
    """The ratio of two quantities: see above."""
    (value, low, high), (value_, low_, high_) = first, second
    middle = value - value_
    known = np.isfinite(middle)
    under = np.where(known, middle - np.hypot(value - low, high_ - value_), low - high_)
    over = np.where(known, middle + np.hypot(high - value, value_ - low_), high - low_)
    return middle, under, over


def ratio(first: Interval, second: Interval) -> Interval:
    """``first`` over ``second``, of two curves whose errors are independent."""

    def logs(interval: Interval) -> Ends:
        value, low, high = (
            np.array(np.nan if end is None else np.log(end)) for end in interval.ends
        )
        return value, low, high

    return Interval.of_logs(*map(float, log_ratio(logs(first), logs(second))))


def compare(
    curves: Sequence[Curve], regimes: Sequence[Regimes | None], baseline: str
) -> list[Comparison | None]:
    """Each curve against its baseline; None for a baseline, and where either was not fitted.

    A curve's baseline is the one, among those that ``baseline`` names (by label, or by a value of
    a column), that shares most of its columns and its target: momentum at width 64 is compared with
    sgd at width 64. Where several share as many, it is compared with none, and a note names them.
    """
    comparisons: list[Comparison | None] = []
    for i, (curve, places) in enumerate(zip(curves, nearest(curves, baseline), strict=True)):
        of_curve, comparison = regimes[i], None
        alike = [place for place in places if _measured_alike(curve, curves[place])]
        if places and not alike and of_curve is not None:
            labels = {"curve": curve.label, "baseline": curves[places[0]].label}
            comparisons.append(_not_compared(curve, Note("measured_otherwise", **labels)))
            continue
        places = alike
        if of_curve is not None and len(places) > 1:
            names = "; ".join(curves[place].label for place in places)
            why = Note("several_baselines", curve=curve.label, labels=names)
            comparison = _not_compared(curve, why)
        elif of_curve is not None and places:
            base, of_base = curves[places[0]], regimes[places[0]]
            if of_base is not None:
                comparison = against(curve, base, of_curve, of_base)
        comparisons.append(comparison)
    return comparisons


def nearest(curves: Sequence[Curve], baseline: str) -> list[list[int]]:
    """The places of what could be each curve's baseline, as ``compare`` says; none for a baseline,
    several where it is not clear."""
    bases = [i for i, curve in enumerate(curves) if is_baseline(curve, baseline)]
    places: list[list[int]] = []
    for i, curve in enumerate(curves):
        far = [] if i in bases else [len(_unlike(curve, curves[base])) for base in bases]
        pairs = zip(bases, far, strict=False)
        places.append([base for base, unlike in pairs if unlike == min(far)])
    return places


def against(
    curve: Curve, base: Curve, of_curve: Regimes, of_base: Regimes, pair: Pair | None = None
) -> Comparison:
    """``curve`` against the baseline ``base``, by their regimes."""
    pair = pair or Pair.of(of_curve, of_base)
    ratios = {}
    for name in QUANTITIES:
        ends = log_ratio(*pair.ends(name, [of_curve.level]))
        ratios[name] = Interval.of_logs(*(float(each[0]) for each in ends))
    return Comparison(
        label=curve.label,
        baseline=base.label,
        ratios=ratios,
        steps=pair.steps(of_curve.level),
        within=pair.within,
        level_ends=pair.level_ends,
        notes=tuple(_notes(curve, base)),
    )


def _measured_alike(curve: Curve, other: Curve) -> bool:
    """Whether the points of two curves are of one quantity: on one evaluation grid, and by one
    estimator."""
    ratios = curve.evaluation_ratio, other.evaluation_ratio
    same_grid = None in ratios or abs((ratios[0] or 0) - (ratios[1] or 0)) < 1e-9
    return same_grid and (curve.repeats or other.repeats or curve.estimator == other.estimator)


def _not_compared(curve: Curve, why: Note) -> Comparison:
    return Comparison(
        label=curve.label,
        baseline=None,
        ratios=dict.fromkeys(QUANTITIES, Interval()),
        measured_alike=why.code != "measured_otherwise",
        notes=(why,),
    )


def _unlike(curve: Curve, other: Curve) -> list[str]:
    """Columns in which two curves differ; ``target`` too."""
    names = dict.fromkeys((*curve.group, *other.group))
    unlike = [name for name in names if curve.group.get(name) != other.group.get(name)]
    return unlike + ["target"] * (curve.target != other.target)


def _notes(curve: Curve, base: Curve) -> list[Note]:
    notes, labels, unlike = [], {"curve": curve.label, "baseline": base.label}, _unlike(curve, base)
    if {"workload", "dataset", "target"} & {*unlike}:
        notes.append(Note("unlike", names=", ".join(unlike), **labels))
    tuned, of_base = curve.dimensions, base.dimensions
    if tuned is not None and of_base is not None and tuned != of_base:
        notes.append(Note("unequal_dimensions", n=tuned, of_base=of_base, **labels))
    if curve.trials != base.trials:
        notes.append(Note("unequal_trials", n=curve.trials, of_base=base.trials, **labels))
    return notes


def _plateau(label: str, steps: Interval) -> str:
    """The sentence on a ratio of least steps; empty where an end is open on both sides of 1."""
    value, low, high = steps.ends
    if high is not None and high < 1:
        value, low, high = (None if end is None else 1 / end for end in (value, high, low))
        inverse = Interval(value=value, low=low, high=high)
        return f"at the plateau {label} takes {ratio_text(inverse)} times fewer steps"
    if low is not None and low > 1:
        return f"at the plateau {label} takes {ratio_text(steps)} times the steps"
    if low is None or high is None:
        return ""
    return f"steps at the plateau cannot be distinguished: their ratio is {ratio_text(steps)}"


def ratio_text(ratio: Interval) -> str:
    """``3.1 [2.4, 4.0]``, ``≥ 2.4``, ``≤ 4.0``: two significant digits."""

    def short(number: float) -> str:
        return f"{number:.1f}" if 1 <= number < 10 else f"{float(f'{number:.2g}'):,g}"

    return text_of(*ratio.ends, number=short)
