"""The local critical batch size: the largest at which a run goes on as well as at its own.

From a step of a run, branches train on at k times its batch size B for as many examples, with
several seeds each (Merrill et al. 2025, arXiv:2505.23971). After a window the loss of k is compared
with that of k = 1 by the mean of log L(k) - log L(1) over seeds, with a t-interval of these
differences: branches of one seed see the same data. Where the two have not as many seeds, it is one
for unequal variances (Welch 1947, doi:10.2307/2332510). k is *within* a tolerance where the
interval's upper end is below log(1 + tolerance), *above* where its lower end is above it, else
*open*. The critical batch size lies between the largest k B within, up to which all tested are, and
the smallest above, from which all are. Its estimate is where the mean, linear in log k, passes the
tolerance. Nothing is extrapolated: an end that no k shows is open. That k = 1 is within itself says
nothing of smaller batch sizes.

A tolerance may be a share p of all examples so far instead: k may need p more of them to the loss.
At k = 1 the log of the loss falls by e times the log of the examples over the windows, so that the
loss may be higher by e log(1 + p). Each seed has an e of its own, whose scatter is in the interval;
where their mean is not above 0, nothing is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.fit.convex import Array
from analysis.fit.interval import Interval
from analysis.notes import Note, codes, note_at
from results.errors import ResultsError

LEVEL = 0.9


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What the branches from one step came to after one window."""

    step: int
    """Steps that the run had taken."""
    window: int
    """Steps of its batch size that the branches' examples are."""
    by_times: Mapping[int, Sequence[float]]
    """The losses of each k, 1 among them: one a seed, infinite where it diverged."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One k against k = 1."""

    times: int
    seeds: int
    excess: Interval
    """The relative excess of its loss, L(k)/L(1) - 1; without ends where there is one seed."""
    verdict: str
    """``within``, ``above`` or ``open``."""
    diverged: int = 0
    """How many of its branches did."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The local critical batch size at one step, by one window."""

    step: int
    window: int
    comparisons: tuple[Comparison, ...]
    """By ascending k, without k = 1."""
    tolerance: float | None
    """The relative excess of the loss that counts as none; None: not known."""
    critical: Interval
    """In examples. ``value`` is the estimate, given where the mean passes the tolerance; ``low``
    the largest batch size that is surely within, as are all smaller ones that were tested, ``high``
    the smallest that is surely above, as are all larger ones."""

    @property
    def within(self) -> set[int]:
        """Each k that is surely within, as is each smaller one that was tested."""
        return _in_sequence(self.comparisons, "within")

    def to_dict(self, batch_size: int) -> dict[str, Any]:
        return {
            "step": self.step,
            "examples": self.step * batch_size,
            "window_steps": self.window,
            "window_examples": self.window * batch_size,
            "tolerance": self.tolerance,
            "critical_batch_size": self.critical.to_dict(),
            "comparisons": [
                {**vars(each), "excess": each.excess.to_dict()} for each in self.comparisons
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Branches:
    """What the branches of one run say."""

    batch_size: int
    tolerance: float
    """Of the loss, or of the examples (``of_examples``)."""
    points: tuple[Point, ...]
    """By step, and window."""
    notes: tuple[Note, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """The run: ``trial``, ``experiment``, ``metric``, ``rule`` …"""
    of_examples: bool = False
    proposed: Mapping[str, Any] | None = None
    """The ramp: ``batch_size``, a line of an experiment file, and what it ``saves``."""

    @property
    def last(self) -> list[Point]:
        """Of each step the point of its longest window."""
        return [*{point.step: point for point in self.points}.values()]

    def ramp(self) -> list[tuple[int, int]]:
        """Where the batch may grow, and to how many times its size: tested powers of two that are
        surely within at that step and at each later one. Empty where nothing is."""
        changes: list[tuple[int, int]] = []
        allowed: set[int] | None = None
        for point in reversed(self.last):
            allowed = point.within if allowed is None else allowed & point.within
            powers = [times for times in allowed if times.bit_count() == 1]
            changes.append((point.step, max(powers, default=1)))
        rising = [(1, 1), *reversed(changes)]
        return [after for before, after in itertools.pairwise(rising) if after[1] > before[1]]

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale branch --json`` prints it."""
        return {
            **self.about,
            "batch_size": self.batch_size,
            "tolerance": self.tolerance,
            "tolerance_of": "examples" if self.of_examples else "loss",
            "level": LEVEL,
            "points": [point.to_dict(self.batch_size) for point in self.points],
            "ramp": None if self.proposed is None else dict(self.proposed),
            "notes": list(self.notes),
            "note_codes": codes(self.notes),
        }


def branches(
    losses: Sequence[Losses],
    batch_size: int,
    *,
    tolerance: float = 0.01,
    of_examples: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Branches:
    """Compare the branches of a run.

    Args:
        losses: of each step and window.
        batch_size: of the run, in examples.
        tolerance: the relative excess of the loss that still counts as none; with ``of_examples``
            the share of more examples to the same loss.

    Raises:
        ResultsError: a tolerance or a loss that is not above 0, of which there is no logarithm.
    """
    if not 0 < tolerance < math.inf:
        hint = "for example 0.01: 1 % of the loss"
        raise ResultsError(f"tolerance {tolerance:g} is not above 0", hint=hint)
    for each in losses:
        if not all(loss > 0 for of_times in each.by_times.values() for loss in of_times):
            raise ResultsError(
                f"a loss after step {each.step:,} is not above 0, and losses are compared by "
                "their ratio",
                hint="choose another metric: --metric validation_cross_entropy",
            )
    ordered = sorted(losses, key=lambda each: (each.step, each.window))
    by_step = itertools.groupby(ordered, key=lambda each: each.step)
    falls = {step: _falls([*windows]) if of_examples else np.ones(1) for step, windows in by_step}
    points = tuple(
        _point(each, batch_size, falls[each.step] * math.log1p(tolerance)) for each in ordered
    )
    return Branches(
        batch_size=batch_size,
        tolerance=tolerance,
        points=points,
        notes=tuple(_notes(points, batch_size)),
        of_examples=of_examples,
        about=dict(about or {}),
    )


def _falls(windows: Sequence[Losses]) -> Array:
    """By how much the log of the loss falls with that of the examples at k = 1: by least squares
    over the windows of one step, for each seed; NaN: not known."""
    at = np.log([each.step + each.window for each in windows])
    logs = np.log([each.by_times[1] for each in windows])
    if len(windows) < 2 or not np.isfinite(logs).all():
        return np.full(1, math.nan)
    return np.asarray(-np.polyfit(at, logs, 1)[0])


def _half_width(values: Array) -> float:
    """Of the t-interval of the mean of some values."""
    from scipy.special import stdtrit  # a third of a second to import: not at start

    quantile = float(stdtrit(len(values) - 1, 0.5 + LEVEL / 2))
    return quantile * float(values.std(ddof=1)) / math.sqrt(len(values))


def _point(losses: Losses, batch_size: int, allowed: Array) -> Point:
    """``allowed``: by how much log L(k) may be above log L(1), of each seed, or of all."""
    base = losses.by_times[1]
    tolerance = float(allowed.mean()) if allowed.mean() > 0 else math.nan
    most = [float(loss) for loss in np.asarray(base) * np.exp(allowed)]
    ratios = {k: _ratio(base, of_k) for k, of_k in sorted(losses.by_times.items()) if k > 1}
    made = [
        Comparison(
            times=times,
            seeds=len(losses.by_times[times]),
            excess=_excess(ratio),
            verdict=_verdict(_ratio(most, losses.by_times[times]), known=tolerance > 0),
            diverged=sum(map(math.isinf, losses.by_times[times])),
        )
        for times, ratio in ratios.items()
    ]
    high = min(_in_sequence(reversed(made), "above"), default=None)
    low = max(_in_sequence(made, "within"), default=None)
    means = {1: 0.0, **{times: ratio[0] for times, ratio in ratios.items()}}
    passed = _passed(means, low or 1, high, tolerance)
    value, lower, upper = (k and float(k * batch_size) for k in (passed, low, high))
    return Point(
        step=losses.step,
        window=losses.window,
        comparisons=tuple(made),
        tolerance=math.expm1(tolerance) if math.isfinite(tolerance) else None,
        critical=Interval(value=value, low=lower, high=upper),
    )


Ratio = tuple[float, float, float]
"""The mean of log L(k) - log L(1) and the ends of its interval; infinite where not known."""


def _ratio(base: Sequence[float], losses: Sequence[float]) -> Ratio:
    if any(map(math.isinf, base)):
        return math.nan, -math.inf, math.inf
    if any(map(math.isinf, losses)):
        return math.inf, math.inf, math.inf
    logs = [np.log(np.asarray(each, float)) for each in (base, losses)]
    mean = float(logs[1].mean() - logs[0].mean())
    if min(map(len, logs)) < 2:
        return mean, -math.inf, math.inf
    if len(base) == len(losses):
        by = _half_width(logs[1] - logs[0])
        return mean, mean - by, mean + by
    from scipy.special import stdtrit

    parts = [float(each.var(ddof=1)) / len(each) for each in logs]
    if not sum(parts):
        return mean, mean, mean
    shares = [part**2 / (len(each) - 1) for part, each in zip(parts, logs, strict=True)]
    freedom = sum(parts) ** 2 / sum(shares)
    by = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * math.sqrt(sum(parts))
    return mean, mean - by, mean + by


def _verdict(ratio: Ratio, *, known: bool) -> str:
    """Of the ratio to the most that is allowed."""
    _, low, high = ratio
    return "open" if not known else "within" if high < 0 else "above" if low > 0 else "open"


def _in_sequence(comparisons: Iterable[Comparison], verdict: str) -> set[int]:
    """Tests in a fixed sequence err once in all as seldom as a single one: it ends at the first k
    of another verdict."""
    alike = itertools.takewhile(lambda each: each.verdict == verdict, comparisons)
    return {each.times for each in alike}


def _excess(ratio: Ratio) -> Interval:
    value, low, high = (math.expm1(x) if math.isfinite(x) else None for x in ratio)
    return Interval(value=value, low=low, high=high)


def _passed(
    means: Mapping[int, float], first: int, last: int | None, tolerance: float
) -> float | None:
    """The k at which the mean passes the tolerance, linear in log k between those tested, from
    ``first`` to ``last``; None where it does not, or where branches diverged."""
    times = [k for k in means if first <= k <= (last or math.inf)]
    for below, above in itertools.pairwise(times):
        before, after = means[below], means[above]
        if before <= tolerance < after < math.inf:
            share = (tolerance - before) / (after - before)
            return float(below * (above / below) ** share)
    return None


def _notes(points: Sequence[Point], batch_size: int) -> list[Note]:
    every = [(point, each) for point in points for each in point.comparisons]
    notes = []
    if any(each.seeds < 2 for _, each in every):
        notes.append(Note("branch_one_seed"))
    diverged = {each.times * batch_size for _, each in every if each.diverged}
    notes += note_at("branch_diverged", sorted(diverged))
    if any(each.excess.value is None and not each.diverged for _, each in every):
        notes.append(Note("branch_base_diverged"))
    if any(point.tolerance is None for point in points):
        notes.append(Note("branch_no_slope"))
    odd = {
        each.times * batch_size
        for point, each in every
        if each.verdict == "within"
        and any(c.verdict == "above" and c.times < each.times for c in point.comparisons)
    }
    return [*notes, *note_at("branch_not_monotone", sorted(odd))]
