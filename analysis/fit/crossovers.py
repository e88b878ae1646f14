"""Where the better of two training algorithms changes: the batch sizes at which their curves cross.

Both curves have their knee, a smooth line (``analysis.fit.knee``). The difference of their log
steps at a batch size has a band by a parametric bootstrap (Efron & Tibshirani 1993, §6.5): normal
noise about each fitted curve, of a variance that is drawn for each replicate from its own
distribution, the noise's estimate over χ²/(n - p), so that a fit of few points has the wide tails
of a t. Where a curve bends as no knee does, since its steps rise again at large batch sizes or its
examples at small ones, it is of the convex curves (``analysis.fit.convex``) and wider: from the
profile intervals of both by the method of variance estimates recovery (Zou & Donner 2008,
doi:10.1002/sim.3095).

A crossover is claimed between two batch sizes at which different curves are better, by ends of a
*simultaneous* band: at level 0.9, the lower end lies above the true difference anywhere over the
whole range in 5 % of all measurements, and so does the upper end below it (the largest deviation
in units of the band's half width, as Working & Hotelling 1929, here from the replicates). Two
curves that do not cross have a difference of one sign; a false claim needs the end of the other
side to be wrong somewhere, which has 5 % whatever the curves are (an intersection-union test,
Berger 1982, doi:10.1080/00401706.1982.10487790).

The interval of a claimed crossover holds the batch sizes at which neither curve is better by the
band of each batch size alone (test inversion, as Fieller's interval of a ratio), its value is where
the fitted curves meet. It assumes that the two curves' errors are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.curves.curve import Curve
from analysis.fit.convex import Array
from analysis.fit.interval import Interval
from analysis.fit.knee import Knee, log_steps
from analysis.fit.locate import Located
from analysis.fit.regimes import Regimes
from analysis.formatting import interval as text_of
from results.errors import ResultsError

REPLICATES = 400
_PLACES = 193


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Two curves of one workload and target, over the range of batch sizes at which both reached
    it."""

    first: str
    second: str
    """Their labels."""
    at: tuple[Interval, ...]
    """Batch sizes at which the better curve changes, ascending; empty: none in the tested range."""
    better: tuple[str | None, ...]
    """The label of the curve that takes fewer steps below, between and above these; None
    where none can be told from the other."""
    level: float
    batch_sizes: Array
    """Where the ratio is given, (n,)."""
    ratio: Array
    """Fitted steps of the first over those of the second, (n,), and the band of that."""
    low: Array
    high: Array

    @property
    def sentence(self) -> str:
        """As ``batchscale regimes --crossover`` prints it."""
        tested = f"from batch size {self.batch_sizes[0]:,.4g} to {self.batch_sizes[-1]:,.4g}"
        pair = f"{self.first} and {self.second}"
        if self.at:
            places = " and ".join(text_of(*each.ends) for each in self.at)
            meeting = f"the curves of {pair} cross at batch size {places}"
            if len(self.at) > 1:
                order = ", ".join(map(str, self.better))
                return f"{meeting}: fewer steps take, from small to large batch sizes, {order}"
            below, above = self.better
            return f"{meeting}: {below} takes fewer steps below, {above} above"
        if self.better[0] is None:
            return f"no crossover of {pair} {tested}: their steps cannot be told apart"
        other = self.second if self.better[0] == self.first else self.first
        return (
            f"no crossover of {pair} {tested}: {self.better[0]} takes fewer steps than {other} "
            "where the two can be told apart"
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``crossovers``."""
        return {
            "with": self.second,
            "at": [each.to_dict() for each in self.at],
            "better": list(self.better),
            "batch_sizes": [float(self.batch_sizes[0]), float(self.batch_sizes[-1])],
            "sentence": self.sentence,
        }


def crossovers(
    curves: Sequence[Curve], regimes: Sequence[Regimes | None], *, level: float = 0.9
) -> list[tuple[int, int, Crossover]]:
    """Every pair of fitted curves with one workload, data set and target that share a range of
    batch sizes: the places of both among ``curves``, and their crossover.

    Args:
        level: coverage of a crossover's interval.

    Raises:
        ResultsError: there is no such pair.
    """
    fits = {row: fit for row, fit in enumerate(regimes) if fit is not None}
    pairs = []
    for i, j in combinations(fits, 2):
        begins, ends = zip(*(fits[row].fitted_over for row in (i, j)), strict=True)
        if _question(curves[i]) == _question(curves[j]) and max(begins) < min(ends):
            pairs.append((i, j))
    if not pairs:
        raise ResultsError(
            "no two fitted curves have the same workload, data set and target, and batch sizes in "
            "common",
            hint="a crossover needs two training algorithms: --by optimizer",
        )

    @cache
    def side(row: int, seed: int) -> Side:
        return Side(located=fits[row].located, knee=fits[row].knee, seed=seed)

    answers = []
    for i, j in pairs:
        changes = sign_changes(side(i, 0), side(j, 1), level=level)
        answers.append((i, j, _named(changes, curves[i].label, curves[j].label, level)))
    return answers


@dataclass(frozen=True, kw_only=True)
class SignChanges:
    """Signs of a difference of log steps with its band, at log batch sizes ``x``, (n,) each."""

    x: Array
    middle: Array
    low: Array
    high: Array
    signs: tuple[int, ...]
    """-1 where the first curve takes surely fewer steps, 1 where more; one a region, in order."""
    logs: tuple[tuple[float, float, float], ...]
    """Log batch sizes of the crossovers, one less than the signs: value, low, high."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two curves."""

    located: Located
    knee: Knee
    seed: int
    """Of its replicates, which are independent of the other curve's."""

    @property
    def turns(self) -> bool:
        """Whether it turns at one of its ends, as no knee does."""
        return self.located.rise is not None or self.located.penalty is not None

    @cached_property
    def replicates(self) -> Array:
        """Parameters of knees, (r, 4)."""
        return self.knee.replicates(REPLICATES, self.seed)


def sign_changes(first: Side, second: Side, *, level: float) -> SignChanges:
    """Over the range of batch sizes that both have: by knees, or by the convex curves where one of
    the two turns."""
    by = _convex_changes if first.turns or second.turns else _knee_changes
    both = first.located.points.x, second.located.points.x
    x = np.linspace(max(each[0] for each in both), min(each[-1] for each in both), _PLACES)
    return by(x, first, second, level)


def _knee_changes(x: Array, first: Side, second: Side, level: float) -> SignChanges:
    middle = first.knee.log_steps(x) - second.knee.log_steps(x)
    drawn = log_steps(x, first.replicates) - log_steps(x, second.replicates)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    half = np.maximum((high - low) / 2, 1e-12)
    away = (drawn - middle) / half
    below, above = (np.quantile(most, (1 + level) / 2) for most in (-away.min(1), away.max(1)))
    return _changes(x, middle, (low, high), (middle - below * half, middle + above * half))


def _convex_changes(x: Array, first: Side, second: Side, level: float) -> SignChanges:
    tested = np.union1d(first.located.points.x, second.located.points.x)
    tested = tested[(tested >= x[0]) & (tested <= x[-1])]
    places = np.sort(np.concatenate([tested, (tested[1:] + tested[:-1]) / 2]))

    def band(level: float) -> list[Array]:
        ends = [[each.located.steps_at(at, level) for at in places] for each in (first, second)]
        (value, low, high), (other, below, above) = np.array(ends).swapaxes(1, 2)
        middle = value - other
        lower, upper = np.hypot(value - low, above - other), np.hypot(high - value, other - below)
        return [np.interp(x, places, each) for each in (middle, middle - lower, middle + upper)]

    middle, *each = band(level)
    _, *every = band(1 - (1 - level) / len(tested))
    return _changes(x, middle, (each[0], each[1]), (every[0], every[1]))


def _changes(
    x: Array, middle: Array, band: tuple[Array, Array], sure: tuple[Array, Array]
) -> SignChanges:
    """By the band of each place alone, and by the simultaneous one."""
    low, high = band
    sign = signs_of(low, high)
    surely = signs_of(np.minimum(low, sure[0]), np.maximum(high, sure[1]))
    signs, logs = changes_between(x, middle, sign, surely)
    sides = np.unique(sign[sign != 0])
    if not signs and len(sides) == 1:
        signs = [int(sides[0])]
    return SignChanges(x=x, middle=middle, low=low, high=high, signs=tuple(signs), logs=tuple(logs))


def changes_between(
    x: Array, middle: Array, sign: NDArray[np.int64], sure: NDArray[np.int64]
) -> tuple[list[int], list[tuple[float, float, float]]]:
    """The signs of a difference that are ``sure``, one a region, and between any two regions where
    it changes: value, low, high.

    Args:
        x: ascending, (n,); ``middle``: the difference.
        sign: its sign by the band of each place alone, 0 where that holds 0.
        sure: the sign where it is claimed, which is that of ``sign``; else 0.
    """
    places = np.flatnonzero(sure)
    signs = [int(sure[places[0]])] if len(places) else []
    logs = []
    for before, after in pairwise(places):
        if sure[before] == sure[after]:
            continue
        signs.append(int(sure[after]))
        between = np.arange(before, after + 1)
        # From the last place before any at which the other curve is better, to the first beyond.
        first_after = between[sign[between] == sure[after]][0]
        last_before = between[sign[between] == sure[before]][-1]
        before = between[(sign[between] == sure[before]) & (between < first_after)][-1]
        after = between[(sign[between] == sure[after]) & (between > last_before)][0]
        part = slice(before, after + 1)
        logs.append((_zero(x[part], middle[part]), float(x[before]), float(x[after])))
    return signs, logs


def signs_of(low: Array, high: Array) -> NDArray[np.int64]:
    """1 where a band lies above 0, -1 where below, 0 where it holds 0."""
    return np.where(low > 0, 1, np.where(high < 0, -1, 0))


def _named(changes: SignChanges, first: str, second: str, level: float) -> Crossover:
    better = tuple(first if sign < 0 else second for sign in changes.signs)
    return Crossover(
        first=first,
        second=second,
        at=tuple(Interval.of_logs(*each) for each in changes.logs),
        better=better or (None,),
        level=level,
        batch_sizes=np.exp(changes.x),
        ratio=np.exp(changes.middle),
        low=np.exp(changes.low),
        high=np.exp(changes.high),
    )


def _zero(x: Array, y: Array) -> float:
    """Where ``y`` passes 0 between its ends, of different signs; linear between places."""
    after = int(np.argmax(np.sign(y) == np.sign(y[-1])))
    if after == 0:
        return float(x[0])
    share = y[after - 1] / (y[after - 1] - y[after])
    return float(x[after - 1] + share * (x[after] - x[after - 1]))


def _question(curve: Curve) -> tuple[Any, ...]:
    return (
        curve.group.get("workload"),
        curve.group.get("dataset"),
        curve.target,
        curve.example_unit,
        curve.evaluation_ratio,
        curve.named,
    )
