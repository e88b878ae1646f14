"""Curves against a baseline: ratios of their quantities, with intervals.

Quantities are compared in natural logs, where a ratio is a difference d = q₁ - q₂. Its interval
comes from the two curves' own profile-likelihood intervals [l, u] by the method of variance
estimates recovery (Zou & Donner 2008, doi:10.1002/sim.2931):

    low = d - √((q₁ - l₁)² + (u₂ - q₂)²)        high = d + √((u₁ - q₁)² + (q₂ - l₂)²)

Taken as a parabola on either side of its estimate, each curve's profile is one unit above its
least at its ends, and these are the d at which the sum of the two profiles, minimized over q₂, is
one unit above its least: the profile likelihood of the ratio, with a noise level for each curve. It
assumes that the two curves' errors are independent.

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
from analysis.fit.interval import Interval
from analysis.fit.knee import QUANTITIES, Array
from analysis.fit.regimes import Regimes
from analysis.formatting import interval as text_of
from results.counts import count

Ends = tuple[Array, Array, Array]
"""Value, low and high in natural logs, NaN where unknown or open; all of one shape."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One curve against the baseline: ratios of its quantities over the baseline's."""

    label: str
    baseline: str | None
    """The baseline's label; None if several curves could be the baseline (``notes`` name them)."""
    ratios: Mapping[str, Interval]
    """Ratio of each of the five quantities; ``critical_batch_size`` above 1 extends perfect
    scaling."""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The comparison as text: "the critical batch size of momentum is 3.1 [2.4, 4.0] times that
        of sgd; at the plateau momentum takes 2.0 [1.7, 2.3] times fewer steps"."""
        if self.baseline is None:
            return f"the baseline of {self.label} is not clear"
        critical, plateau = self.ratios["critical_batch_size"], self.ratios["min_steps"]
        both = f"the critical batch sizes of {self.label} and {self.baseline}"
        if (critical.low is not None and critical.low > 1) or (
            critical.high is not None and critical.high < 1
        ):
            scaling = (
                f"the critical batch size of {self.label} is {ratio_text(critical)} times that of "
                f"{self.baseline}"
            )
        elif critical.low is None and critical.high is None:
            scaling = f"{both} are not known well enough"
        else:
            scaling = f"{both} cannot be distinguished: their ratio is {ratio_text(critical)}"
        return "; ".join(filter(None, (scaling, _plateau(self.label, plateau))))

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``against``."""
        return {
            "baseline": self.baseline,
            "ratios": {name: ratio.to_dict() for name, ratio in self.ratios.items()},
            "sentence": self.sentence,
        }


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
        if of_curve is not None and len(places) > 1:
            comparison = _unclear(curve, [curves[place].label for place in places])
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


def against(curve: Curve, base: Curve, of_curve: Regimes, of_base: Regimes) -> Comparison:
    """``curve`` against the baseline ``base``, by their regimes."""
    return Comparison(
        label=curve.label,
        baseline=base.label,
        ratios={
            name: ratio(getattr(of_curve, name), getattr(of_base, name)) for name in QUANTITIES
        },
        notes=tuple(_notes(curve, base)),
    )


def _unclear(curve: Curve, labels: Sequence[str]) -> Comparison:
    return Comparison(
        label=curve.label,
        baseline=None,
        ratios=dict.fromkeys(QUANTITIES, Interval()),
        notes=(f"several curves could be the baseline of {curve.label}: {'; '.join(labels)}",),
    )


def _unlike(curve: Curve, other: Curve) -> list[str]:
    """Columns in which two curves differ; ``target`` too."""
    names = dict.fromkeys((*curve.group, *other.group))
    unlike = [name for name in names if curve.group.get(name) != other.group.get(name)]
    return unlike + ["target"] * (curve.target != other.target)


def _notes(curve: Curve, base: Curve) -> list[str]:
    notes = []
    unlike = _unlike(curve, base)
    if {"workload", "dataset", "target"} & {*unlike}:
        notes.append(
            f"not like for like: {curve.label} and {base.label} differ in {', '.join(unlike)}"
        )
    dimensions, of_base = curve.dimensions, base.dimensions
    if dimensions is not None and of_base is not None and dimensions != of_base:
        tuned = f"{count(dimensions, 'metaparameter', 'were')} tuned for {curve.label}"
        notes.append(
            f"{tuned} and {of_base} for {base.label}: the best of N trials costs more in more "
            "dimensions, so that the ratio of plateau steps is of the searches too"
        )
    if curve.trials != base.trials:
        notes.append(
            f"points are the best of {curve.trials} for {curve.label} and of {base.trials} for "
            f"{base.label}: the ratio of plateau steps is of the searches too"
        )
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
