"""Steps to a target from many measurements, batch by batch: memory holds one row a trial.

The slow twin (``retarget.steps_to_target``) sorts all evaluations at once. As a commit writes them,
the evaluations of a trial are contiguous and ordered by step, so that one pass gives the first
strictly better one and the last miss before it. A trial that is not so ordered is marked as
scattered, and left to the twin.

An evaluation that ended after a part of its split is a hit or a miss where its interval says so,
and else undecided: the first hit is then one that is certain, and the last miss comes before
all that may be hits, so that the bracket holds the steps that full evaluations would have given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results.targets.evaluations import Batch, Numbers, Places, live
from results.targets.target import Target

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class FirstHits:
    """Values of each trial, in the order of the given trials; (n,) each."""

    first: Numbers
    """Steps to the target, NaN where it was not reached."""
    last_miss: Numbers
    """The last miss before it, 0 if there was none; NaN where the target was not reached."""
    undecided: NDArray[np.int64]
    """The number of evaluations before it that may have passed the target as well, since they ended
    after a part of their split; of a trial that did not reach it: of all."""
    measured: NDArray[np.bool_]
    """Whether any evaluation has a value of the metric."""
    scattered: NDArray[np.bool_]
    """Whether its evaluations are not ordered by step, so that those above are not valid."""


def first_hits(
    batches: Iterable[pa.RecordBatch], trials: Sequence[str], runs: Sequence[str], target: Target
) -> FirstHits:
    """The step at which each of ``trials`` first was strictly better than ``target``.

    ``batches`` are those of ``evaluations.live``. A row counts if its trial is among ``trials``
    with its run at that place in ``runs``. An evaluation without a value does not count.
    """
    search = _Search(len(trials), target)
    for batch in live(batches, trials, runs, target.metric):
        search.add(batch)
    hit = np.isfinite(search.first)
    return FirstHits(
        first=np.where(hit, search.first, np.nan),
        last_miss=np.where(hit, search.miss, np.nan),
        undecided=search.undecided,
        measured=search.last >= 0,
        scattered=search.scattered,
    )


class _Search:
    def __init__(self, trials: int, target: Target) -> None:
        self._target = target
        self.first = np.full(trials, np.inf)
        self.miss = np.zeros(trials)
        self.undecided = np.zeros(trials, np.int64)
        self.last = np.full(trials, -1, np.int64)
        self.scattered = np.zeros(trials, bool)
        self._open = np.full(trials, np.inf)
        """The first evaluation that may have passed the target: no later one is its last miss."""

    def add(self, batch: Batch) -> None:
        assert batch.value is not None
        measured = ~np.isnan(batch.value)
        if not measured.any():
            return
        batch = batch.rows(measured)
        trial, starts, step = batch.trial, batch.starts, batch.step
        maybe, hit = batch.decided(self._target)
        falls = step[1:] < step[:-1]
        falls[starts[1:] - 1] = False
        if falls.any() or len(np.unique(trial)) < len(trial):
            each = batch.by_row(trial)
            order = np.lexsort((step, each))
            each, step, maybe, hit = each[order], step[order], maybe[order], hit[order]
            starts = np.flatnonzero(np.concatenate([[True], each[1:] != each[:-1]]))
            trial = each[starts]
        self._join(trial, starts, step, maybe, hit)

    def _join(self, trial: Places, starts: Places, step: Places, maybe: Flags, hit: Flags) -> None:
        """Append a batch: ``trial`` each once, its evaluations from ``starts`` on."""
        ends = np.append(starts[1:], len(step))
        self.scattered[trial[step[starts] < self.last[trial]]] = True
        of, at = _firsts(starts, hit)
        new = np.isinf(self.first[trial[of]])
        self.first[trial[of[new]]] = step[at[new]]
        of, at = _firsts(starts, maybe)
        new = np.isinf(self._open[trial[of]])
        of, at = of[new], at[new]
        before = np.maximum(self.last[trial[of]], 0)
        self._open[trial[of]] = step[at]
        self.miss[trial[of]] = np.where(at > starts[of], step[at - 1], before)
        undecided = np.flatnonzero(maybe & ~hit)
        if len(undecided):
            of = trial[np.searchsorted(starts, undecided, side="right") - 1]
            np.add.at(self.undecided, of[step[undecided] < self.first[of]], 1)
        self.last[trial] = step[ends - 1]


def _firsts(starts: Places, among: Flags) -> tuple[Places, Places]:
    """The segments that have a row ``among`` (n,), and the first of these rows in each."""
    rows = np.flatnonzero(among)
    of, at = np.unique(np.searchsorted(starts, rows, side="right") - 1, return_index=True)
    return of, rows[at]
