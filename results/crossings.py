"""Steps to a target out of many measurements, batch by batch: nothing is held but a row a trial.

The plain way (``results.reached.steps_to_target``) sorts all looks at once. Written by a commit,
the looks of a trial stand together and by step, so that one pass finds the first strictly better
one and the last miss before it. A trial whose looks stand otherwise is named, for the plain way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results.schema import METRIC_COLUMNS
from results.target import Target

_KEYS_READ = 256
"""Texts of ``metrics`` looked into, a batch, for the names of what is measured."""

Places = NDArray[np.int64]
Numbers = NDArray[np.float64]
Batch = tuple[Places, Places, Numbers | None]
"""Trial, step and value of each row, (n,) each."""


@dataclass(frozen=True)
class Crossings:
    """Of each trial, in the order of the trials asked for; (n,) each."""

    first: Numbers
    """Steps to the target, NaN where it was not reached."""
    last_miss: Numbers
    """The look before, 0 if there was none; NaN where the target was not reached."""
    measured: NDArray[np.bool_]
    """Whether any look has a value of the metric."""
    scattered: NDArray[np.bool_]
    """Whether its looks do not stand by step, so that the three above say nothing."""


def column_of(metric: str) -> str:
    """The column of measurements that holds a metric."""
    return metric if metric in METRIC_COLUMNS else "metrics"


def crossings(
    batches: Iterable[pa.RecordBatch], trials: Sequence[str], runs: Sequence[str], target: Target
) -> Crossings:
    """Where each of ``trials`` first was strictly better than ``target``.

    ``batches`` have the columns trial, run, step and ``column_of(target.metric)``; text may be
    dictionary-encoded. A row counts if its trial is among ``trials`` with its run at that place in
    ``runs``. A look without a value is no look.
    """
    search = _Search(len(trials), target)
    for trial, step, value in live(batches, trials, runs, target.metric):
        assert value is not None
        search.add(trial, step, value)
    reached = np.isfinite(search.first)
    return Crossings(
        first=np.where(reached, search.first, np.nan),
        last_miss=np.where(reached, search.miss, np.nan),
        measured=search.last >= 0,
        scattered=search.scattered,
    )


def measured_metrics(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """The metrics of which ``batches`` (of ``METRIC_COLUMNS`` and ``metrics``) hold values."""
    columns: set[str] = set()
    keys: set[str] = set()
    for batch in batches:
        for name in METRIC_COLUMNS:
            if name not in columns and not np.isnan(_numbers(batch.column(name))).all():
                columns.add(name)
        texts = batch.column("metrics").drop_null()[:_KEYS_READ].to_pylist()
        keys.update(key for text in texts for key in json.loads(text))
    return [*(name for name in METRIC_COLUMNS if name in columns), *sorted(keys)]


def live(
    batches: Iterable[pa.RecordBatch],
    trials: Sequence[str],
    runs: Sequence[str | None],
    metric: str | None,
) -> Iterator[Batch]:
    """Of each batch the rows whose trial is among ``trials`` with its run at that place in
    ``runs``: the trial's place, the step, and the metric's value, NaN where there is none.

    ``batches`` have the columns that ``crossings`` asks for; without a ``metric``, no values.
    """
    places = {name: place for place, name in enumerate(trials)}
    known: dict[str, int] = {}
    for run in runs:
        if run is not None:
            known.setdefault(run, len(known))
    run_of = np.array([-2 if run is None else known[run] for run in runs], np.int64)
    for batch in batches:
        trial = _coded(batch.column("trial"), places)
        step = batch.column("step").to_numpy(zero_copy_only=False)
        value = None
        if metric is not None:
            value = _values(batch.column(column_of(metric)), metric)
        keep = trial >= 0
        if len(run_of):
            keep &= run_of[trial] == _coded(batch.column("run"), known)
        if not keep.all():
            trial, step = trial[keep], step[keep]
            value = None if value is None else value[keep]
        if len(trial):
            yield trial, step, value


class _Search:
    def __init__(self, trials: int, target: Target) -> None:
        self._target = target
        self.first = np.full(trials, np.inf)
        self.miss = np.zeros(trials)
        self.last = np.full(trials, -1, np.int64)
        self.scattered = np.zeros(trials, bool)

    def add(self, trial: Places, step: Places, value: Numbers) -> None:
        looked = ~np.isnan(value)
        if not looked.all():
            trial, step, value = trial[looked], step[looked], value[looked]
        if not len(trial):
            return
        hit = (
            value < self._target.value
            if self._target.lower_is_better
            else (value > self._target.value)
        )
        starts = np.flatnonzero(np.concatenate([[True], trial[1:] != trial[:-1]]))
        falls = (step[1:] < step[:-1]) & (trial[1:] == trial[:-1])
        if falls.any() or len(np.unique(trial[starts])) < len(starts):
            order = np.lexsort((step, trial))
            trial, step, hit = trial[order], step[order], hit[order]
            starts = np.flatnonzero(np.concatenate([[True], trial[1:] != trial[:-1]]))
        self._join(trial[starts], starts, step, hit)

    def _join(self, trial: Places, starts: Places, step: Places, hit: NDArray[np.bool_]) -> None:
        """Put a batch behind those before it: ``trial`` each once, its looks from ``starts`` on."""
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


def _coded(column: pa.Array, places: dict[str, int]) -> Places:
    """The place of each text, -1 for one that has none."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = [places.get(name, -1) for name in column.dictionary.to_pylist()]
    table = np.array([*names, -1], np.int64)
    codes = column.indices
    if codes.null_count:
        codes = codes.fill_null(len(names))
    return table[codes.to_numpy(zero_copy_only=False)]


def _values(column: pa.Array, metric: str) -> Numbers:
    if not pa.types.is_string(column.type):
        return _numbers(column)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.full(len(column), np.nan)
    found = json.loads(f"[{','.join(column.drop_null().to_pylist())}]")
    values[present] = [float(each.get(metric, np.nan)) for each in found]
    return values


def _numbers(column: pa.Array) -> Numbers:
    """As float64, null as NaN."""
    found: Numbers = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    return found
