"""Trials as plain columns: their reliable numbers, order statistics, and outcomes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.notes import Note
from results.storage.values import mapping

Rows = NDArray[np.intp]
"""Places in ``Runs``."""

BAR = 4
"""The order statistic that the error bar of a point rests on."""

CLASSES = ("reached", "not reached", "dominated", "infeasible")
"""Outcomes of a trial. Under dominated stopping a stopped trial might have reached the target
later: it is a separate class, whose size depends on the order of training."""


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """A trial that ran to an end. ``became`` is one of ``CLASSES``."""

    trial: str | None
    became: str
    steps: float | None
    """Steps to target."""
    learning_rate: float | None
    momentum: float | None

    @property
    def effective_learning_rate(self) -> float | None:
        """Learning rate / (1 - momentum); None without either, or at a momentum of 1."""
        if self.learning_rate is None or self.momentum is None or self.momentum >= 1:
            return None
        return self.learning_rate / (1 - self.momentum)


class Columns(Mapping[str, np.ndarray]):
    """The columns of a frame as objects, (n,) each; made when they are asked for, since most never
    are, and text takes its memory again."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            self._made[name] = self._frame[name].to_numpy(object)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame.columns)

    def __len__(self) -> int:
        return len(self._frame.columns)


@dataclass(frozen=True)
class Runs:
    """Rows of trials as plain columns: a curve is made of hundreds of small groups of them."""

    rows: Mapping[str, np.ndarray]
    """``study``, ``trial``, ``metaparameters``, ``batch_size`` …, as objects, (n,)."""
    steps: np.ndarray
    """Steps to target, NaN where it was not reached; likewise the next ones; (n,)."""
    last_miss: np.ndarray
    undecided: np.ndarray
    """The number of evaluations that ended early and may have passed the target."""
    relative_error: np.ndarray
    """Of the steps to target, where they were read off a figure."""
    steps_run: np.ndarray
    index: np.ndarray
    enlargement: np.ndarray
    """How many times the search space had been enlarged when the trial was drawn."""
    keep: np.ndarray
    replicate: np.ndarray
    """The number of the search of a design's baseline; 0: the first, or no such design."""
    diverged: np.ndarray
    """INFEASIBLE, unless it had reached the target, where others are stopped."""
    dominated: np.ndarray
    ended: np.ndarray
    """COMPLETE, INFEASIBLE or dominated. Trials with an error or an interruption carry no
    information."""

    @classmethod
    def of(cls, trials: pd.DataFrame) -> Runs:
        """The columns of ``trials``, in their order."""
        numbers = partial(numeric, trials)
        status, reason = (trials[name].to_numpy(object) for name in ("status", "stop_reason"))
        steps, infeasible = numbers("steps_to_target"), status == "INFEASIBLE"
        dominated = (status == "INCOMPLETE") & (reason == "dominated")
        return cls(
            rows=Columns(trials),
            steps=steps,
            last_miss=numbers("last_miss"),
            undecided=np.nan_to_num(numbers("undecided_evaluations")),
            relative_error=numbers("relative_error"),
            steps_run=numbers("steps_run"),
            index=numbers("index"),
            enlargement=np.nan_to_num(numbers("enlargement")),
            keep=numbers("keep"),
            replicate=np.nan_to_num(numbers("replicate")),
            diverged=infeasible & np.isnan(steps),
            dominated=dominated,
            ended=infeasible | dominated | (status == "COMPLETE"),
        )

    def kept(self, rows: Rows) -> int | None:
        """The least ``keep`` of the rows' studies; None where dominated stopping was off in all."""
        keep = self.keep[rows]
        keep = keep[np.isfinite(keep)]
        return int(keep.min()) if len(keep) else None

    def cutoff(self, rows: Rows, keep: int | None) -> float:
        """Steps up to which the rows' order statistics are exact.

        That is X(keep) of the rows: beyond it, what is recorded depends on the order of training. A
        row that was dominated by trials which are not among ``rows`` (the first n of a study, one
        of its searches) says only that it takes more steps than it ran.
        """
        stopped = rows[self.dominated[rows] & ~np.isfinite(self.steps[rows])]
        ran = self.steps_run[stopped]
        return min(last_exact(self.steps[rows], keep), float(np.nanmin(ran, initial=np.inf)))

    def undecided_notes(self, rows: Rows) -> list[Note]:
        """Notes on evaluations of the trials ``rows`` that ended early, once a miss of the targets
        that were asked for then was certain, and leave this target open."""
        rows = rows[self.undecided[rows] > 0]
        hit = int(np.isfinite(self.steps[rows]).sum())
        counts = {"wider_bracket": hit, "undecided": len(rows) - hit}
        return [Note(code, n=n) for code, n in counts.items() if n]

    def outcomes(self, rows: Rows) -> tuple[TrialOutcome, ...]:
        """The outcomes of those of the trials ``rows`` that ended, in their order."""
        ended = rows[self.ended[rows]]
        became = np.select(
            [np.isfinite(self.steps[ended]), self.diverged[ended], self.dominated[ended]],
            ["reached", "infeasible", "dominated"],
            "not reached",
        )
        return tuple(
            TrialOutcome(
                trial=self.rows["trial"][row],
                became=str(name),
                steps=number(self.steps[row]),
                learning_rate=number(self.rows["learning_rate"][row]),
                momentum=number(self.rows["momentum"][row]),
            )
            for row, name in zip(ended, became, strict=True)
        )


def numeric(trials: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as floats, NaN for any null, and where there is no such column; (n,)."""
    if name not in trials:
        return np.full(len(trials), np.nan)
    column: NDArray[np.float64] = pd.to_numeric(trials[name]).to_numpy(float, na_value=np.nan)
    return column


def shares(outcomes: Sequence[TrialOutcome]) -> dict[str, float]:
    """The share of each class among the trials that ran; empty where none did."""
    counts = Counter(outcome.became for outcome in outcomes)
    return {name: counts[name] / len(outcomes) for name in CLASSES} if outcomes else {}


def order_statistic(values: Iterable[float | None], r: int) -> float | None:
    """X(r), the ``r``-th smallest of the steps to target; missing ones (None, NaN) are infinite.

    Returns None when fewer than ``r`` trials reached the target.

    Raises:
        ValueError: ``r`` is below 1.
    """
    if r < 1:
        raise ValueError(f"there is no order statistic {r}: the smallest is 1")
    finite = sorted(float(value) for value in values if value is not None and isfinite(value))
    return finite[r - 1] if len(finite) >= r else None


def last_exact(values: Iterable[float | None], keep: int | None) -> float:
    """X(keep), the largest steps to target that dominated stopping leaves exact; infinite when it
    was off (``keep`` is None) or never set in. Later ones depend on the order of training, so
    that every statistic censors again here."""
    largest = None if keep is None else order_statistic(values, keep)
    return inf if largest is None else largest


def error_bar(first: float | None, fourth: float | None) -> tuple[float, float] | None:
    """The error bar of a best of N, in steps: from X(1)² / X(4) to X(4).

    In log steps it reaches as far below X(1) as X(4) lies above. With fewer than four hits
    (``fourth`` is None) its upper end is infinite, and nothing is known of its lower one: it is
    put at X(1). None without a hit.
    """
    if first is None:
        return None
    if fourth is None:
        return first, inf
    return first * first / fourth if fourth else 0.0, fourth


def number(value: Any) -> float | None:
    """A float; None for any null."""
    if value is None or value is pd.NA or value != value:
        return None
    return float(value)


def parameters(text: Any) -> dict[str, Any]:
    """Metaparameters as a mapping, from the JSON text of a trials row or a mapping."""
    if isinstance(text, str):
        return mapping(text, "metaparameters") if text else {}
    return dict(text) if isinstance(text, Mapping) else {}


LEVEL = 0.9
"""Coverage of the interval of a median of repeats where there are enough of them for it."""


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Runs of one configuration, the best of a search, with fresh seeds.

    The least of N trials is the least over N seeds too, so it lies below what its configuration
    usually takes. Its repeats were not selected: their median has no such bias. Steps are steps to
    target, infinite where it was not reached.
    """

    steps: tuple[float, ...]
    """Steps of each run, ascending."""

    @property
    def median(self) -> float | None:
        """Their median; None where half of them or more never reached the target."""
        middle = float(np.median(self.steps)) if self.steps else math.inf
        return middle if math.isfinite(middle) else None

    @property
    def interval(self) -> tuple[float, float]:
        """From the k-th smallest to the k-th largest run: for any distribution the median of the
        configuration's runs lies between with the probability ``level``."""
        k = self._rank
        return self.steps[k - 1], self.steps[-k]

    @property
    def level(self) -> float:
        """Coverage of ``interval``: 1 - 2 P(Binomial(n, 1/2) < k), at least ``LEVEL`` from five
        runs on; below, that of the least and the most."""
        return self._coverage(self._rank)

    @property
    def _rank(self) -> int:
        """The largest k whose interval has that coverage, or 1."""
        ranks = range(2, len(self.steps) // 2 + 1)
        return max([1, *(k for k in ranks if self._coverage(k) >= LEVEL)])

    def _coverage(self, k: int) -> float:
        runs = len(self.steps)
        if runs < 2:
            return 0.0
        return 1.0 - 2.0 * sum(math.comb(runs, i) for i in range(k)) / 2.0**runs


def repeats_of_best(
    runs: Runs, rows: Rows, best: Mapping[str, Any], study: Any
) -> tuple[Repeats | None, int]:
    """The repeats among ``rows`` whose study and metaparameters are those of the best trial, and
    how many there are of other configurations.

    A repeat that diverged never reached the target; one that was interrupted is not counted.
    """
    rows = rows[runs.ended[rows] & ~runs.dominated[rows]]
    same = [
        runs.rows["study"][row] == study and parameters(runs.rows["metaparameters"][row]) == best
        for row in rows
    ]
    steps = runs.steps[rows[np.array(same, dtype=bool)]]
    steps = np.sort(np.where(np.isnan(steps), np.inf, steps))
    repeats = Repeats(steps=tuple(steps.tolist())) if len(steps) else None
    return repeats, len(rows) - len(steps)
