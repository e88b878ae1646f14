"""Curves against a baseline: ratios of what was found, with intervals.

Quantities are compared in natural logs, where a ratio is a difference d = q₁ - q₂. Its interval
comes from the two curves' own profile-likelihood intervals [l, u] by the method of variance
estimates recovery (Zou & Donner 2008, doi:10.1002/sim.2931):

    low = d - √((q₁ - l₁)² + (u₂ - q₂)²)        high = d + √((u₁ - q₁)² + (q₂ - l₂)²)

Taken as a parabola on either side of its estimate, each curve's profile is one unit above its
least at its ends, and these are the d at which the sum of the two profiles, minimized over q₂, is
one unit above its own least: the profile likelihood of the ratio, with each curve's noise level
its own. It asks that the two curves' errors are independent.

Where a curve has no value (its estimate lies outside the tested batch sizes, or its interval is
too wide) there is no centre to measure from: the ends are then l₁ - u₂ and u₁ - l₂, which is wider.
An end that needs an open one is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.curve import Curve, is_baseline
from analysis.fit.estimate import QUANTITIES
from analysis.fit.knee import Array
from analysis.fit.regimes import Interval, Regimes
from results.counts import count

Ends = tuple[Array, Array, Array]
"""Value, low and high in natural logs, NaN where unknown or open; all of one shape."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One curve against the baseline: ratios of its quantities over the baseline's."""

    label: str
    baseline: str | None
    """Its label; None where several curves could be it (``notes`` name them)."""
    ratios: Mapping[str, Interval]
    """For each of the five quantities; ``critical_batch_size`` above 1 extends perfect scaling."""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in words: "the critical batch size of momentum is 3.1 [2.4, 4.0] times that
        of sgd; at the plateau momentum takes 2.0 [1.7, 2.3] times fewer steps"."""
        if self.baseline is None:
            return f"the baseline of {self.label} is not clear"
        scaling = _scaling(self.label, self.baseline, self.ratios["critical_batch_size"])
        plateau = _plateau(self.label, self.ratios["min_steps"])
        return "; ".join(filter(None, (scaling, plateau)))

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``against``."""
        return {
            "baseline": self.baseline,
            "ratios": {name: ratio.to_dict() for name, ratio in self.ratios.items()},
            "sentence": self.sentence,
        }


def log_ratio(one: Ends, other: Ends) -> Ends:
    """The ratio of two quantities: see above."""
    (value, low, high), (value_, low_, high_) = one, other
    middle = value - value_
    known = np.isfinite(middle)
    under = np.where(known, middle - np.hypot(value - low, high_ - value_), low - high_)
    over = np.where(known, middle + np.hypot(high - value, value_ - low_), high - low_)
    return middle, under, over


def ratio(one: Interval, other: Interval) -> Interval:
    """``one`` over ``other``, of two curves whose errors are independent."""
    numbers = (float(each) for each in log_ratio(_logs(one), _logs(other)))
    value, low, high = (float(np.exp(x)) if np.isfinite(x) else None for x in numbers)
    return Interval(value=value, low=low, high=high)


def compare(
    curves: Sequence[Curve], found: Sequence[Regimes | None], baseline: str
) -> list[Comparison | None]:
    """Each curve against its baseline; None for a baseline, and where either was not fitted.

    A curve's baseline is the one, among those that ``baseline`` names (by label, or by a value of
    a column), that shares most of its columns and its target: momentum at width 64 is held against
    sgd at width 64. Where several share as many, it is held against none, and a note says so.
    """
    bases = [i for i, curve in enumerate(curves) if is_baseline(curve, baseline)]
    answers: list[Comparison | None] = []
    for i, (curve, mine) in enumerate(zip(curves, found, strict=True)):
        near = [] if i in bases or mine is None else _nearest(curves, i, bases)
        answers.append(_against(curve, mine, curves, found, near) if mine and near else None)
    return answers


def _against(
    curve: Curve,
    mine: Regimes,
    curves: Sequence[Curve],
    found: Sequence[Regimes | None],
    near: Sequence[int],
) -> Comparison | None:
    if len(near) > 1:
        unknown = Interval(value=None, low=None, high=None)
        could = "; ".join(curves[each].label for each in near)
        return Comparison(
            label=curve.label,
            baseline=None,
            ratios=dict.fromkeys(QUANTITIES, unknown),
            notes=(f"several curves could be the baseline of {curve.label}: {could}",),
        )
    theirs, base = found[near[0]], curves[near[0]]
    if theirs is None:
        return None
    return Comparison(
        label=curve.label,
        baseline=base.label,
        ratios={name: ratio(getattr(mine, name), getattr(theirs, name)) for name in QUANTITIES},
        notes=tuple(_notes(curve, base)),
    )


def _logs(interval: Interval) -> Ends:
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (np.array(np.nan if end is None else np.log(end)) for end in ends)
    return value, low, high


def _nearest(curves: Sequence[Curve], mine: int, bases: Sequence[int]) -> list[int]:
    """Of the baselines those that differ from the curve in the fewest columns."""
    far = [len(_unlike(curves[mine], curves[base])) for base in bases]
    return [base for base, count in zip(bases, far, strict=True) if count == min(far)]


def _unlike(one: Curve, other: Curve) -> list[str]:
    """Columns in which two curves differ; ``target`` too."""
    names = dict.fromkeys((*one.group, *other.group))
    unlike = [name for name in names if one.group.get(name) != other.group.get(name)]
    return unlike + ["target"] * (one.target != other.target)


def _notes(curve: Curve, base: Curve) -> list[str]:
    notes = []
    unlike = _unlike(curve, base)
    if {"workload", "dataset", "target"} & {*unlike}:
        notes.append(f"not like for like: {curve.label} and {base.label} differ in "
                     + ", ".join(unlike))  # fmt: skip
    mine, theirs = curve.dimensions, base.dimensions
    if mine is not None and theirs is not None and mine != theirs:
        tuned = f"{count(mine, 'metaparameter', 'were')} tuned for {curve.label} and {theirs}"
        notes.append(
            f"{tuned} for {base.label}: the best of N trials costs more in more dimensions, so "
            "that the ratio of plateau steps is of the searches too"
        )
    if curve.trials != base.trials:
        notes.append(
            f"points are the best of {curve.trials} for {curve.label} and of {base.trials} for "
            f"{base.label}: the ratio of plateau steps is of the searches too"
        )
    return notes


def _scaling(label: str, baseline: str, ratio: Interval) -> str:
    low, high = ratio.low, ratio.high
    if (low is not None and low > 1) or (high is not None and high < 1):
        return f"the critical batch size of {label} is {words(ratio)} times that of {baseline}"
    both = f"the critical batch sizes of {label} and {baseline}"
    if low is None and high is None:
        return f"{both} are not known well enough"
    return f"{both} are not told apart: their ratio is {words(ratio)}"


def _plateau(label: str, ratio: Interval) -> str:
    low, high = ratio.low, ratio.high
    if high is not None and high < 1:
        return f"at the plateau {label} takes {words(_inverse(ratio))} times fewer steps"
    if low is not None and low > 1:
        return f"at the plateau {label} takes {words(ratio)} times the steps"
    if low is None or high is None:
        return ""
    return f"steps at the plateau are not told apart: their ratio is {words(ratio)}"


def words(found: Interval) -> str:
    """``3.1 [2.4, 4.0]``, ``≥ 2.4``, ``≤ 4.0``."""
    value, low, high = (None if x is None else _short(x) for x in
                        (found.value, found.low, found.high))  # fmt: skip
    if low is not None and high is not None:
        return " ".join(filter(None, (value, f"[{low}, {high}]")))
    return f"≥ {low}" if low is not None else f"≤ {high}"


def _short(number: float) -> str:
    """Two significant digits."""
    return f"{number:.1f}" if 1 <= number < 10 else f"{float(f'{number:.2g}'):,g}"


def _inverse(found: Interval) -> Interval:
    value, low, high = (None if x is None else 1 / x for x in (found.value, found.high, found.low))
    return Interval(value=value, low=low, high=high)
