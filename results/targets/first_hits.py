"""Steps to a target from many measurements, batch by batch: memory holds one row a trial.

The slow twin (``retarget.steps_to_target``) sorts all evaluations at once. As a commit writes them,
the evaluations of a trial are contiguous and ordered by step, so that one pass gives the first
strictly better one and the last miss before it. A trial that is not so ordered is marked as
scattered, and left to the twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results.targets.evaluations import Batch, Numbers, Places, live
from results.targets.target import Target


@dataclass(frozen=True)
class FirstHits:
    """Values of each trial, in the order of the given trials; (n,) each."""

    first: Numbers
    """Steps to the target, NaN where it was not reached."""
    last_miss: Numbers
    """The evaluation before, 0 if there was none; NaN where the target was not reached."""
    measured: NDArray[np.bool_]
    """Whether any evaluation has a value of the metric."""
    scattered: NDArray[np.bool_]
    """Whether its evaluations are not ordered by step, so that the three above are not valid."""


def first_hits(
    batches: Iterable[pa.RecordBatch], trials: Sequence[str], runs: Sequence[str], target: Target
) -> FirstHits:
    """The step at which each of ``trials`` first was strictly better than ``target``.

    ``batches`` have the columns trial, run, step and ``column_of(target.metric)``; text may be
    dictionary-encoded. A row counts if its trial is among ``trials`` with its run at that place in
    ``runs``. An evaluation without a value does not count.
    """
    search = _Search(len(trials), target)
    for batch in live(batches, trials, runs, target.metric):
        search.add(batch)
    hit = np.isfinite(search.first)
    return FirstHits(
        first=np.where(hit, search.first, np.nan),
        last_miss=np.where(hit, search.miss, np.nan),
        measured=search.last >= 0,
        scattered=search.scattered,
    )


class _Search:
    def __init__(self, trials: int, target: Target) -> None:
        self._target = target
        self.first = np.full(trials, np.inf)
        self.miss = np.zeros(trials)
        self.last = np.full(trials, -1, np.int64)
        self.scattered = np.zeros(trials, bool)

    def add(self, batch: Batch) -> None:
        assert batch.value is not None
        measured = ~np.isnan(batch.value)
        if not measured.any():
            return
        batch = batch.rows(measured)
        trial, starts, step, value = batch.trial, batch.starts, batch.step, batch.value
        assert value is not None
        hit = self._target.hits(value)
        falls = step[1:] < step[:-1]
        falls[starts[1:] - 1] = False
        if falls.any() or len(np.unique(trial)) < len(trial):
            each = batch.by_row(trial)
            order = np.lexsort((step, each))
            each, step, hit = each[order], step[order], hit[order]
            starts = np.flatnonzero(np.concatenate([[True], each[1:] != each[:-1]]))
            trial = each[starts]
        self._join(trial, starts, step, hit)

    def _join(self, trial: Places, starts: Places, step: Places, hit: NDArray[np.bool_]) -> None:
        """Append a batch: ``trial`` each once, its evaluations from ``starts`` on."""
        ends = np.append(starts[1:], len(step))
        self.scattered[trial[step[starts] < self.last[trial]]] = True
        hits = np.flatnonzero(hit)
        of = np.searchsorted(starts, hits, side="right") - 1
        of, at = np.unique(of, return_index=True)
        at = hits[at]
        new = np.isinf(self.first[trial[of]])
        of, at = of[new], at[new]
        before = np.maximum(self.last[trial[of]], 0)
        self.first[trial[of]] = step[at]
        self.miss[trial[of]] = np.where(at > starts[of], step[at - 1], before)
        self.last[trial] = step[ends - 1]
