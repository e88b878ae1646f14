"""Steps to a target out of many measurements, batch by batch: nothing is held but a row a trial.

The plain way (``retarget.steps_to_target``) sorts all looks at once. Written by a commit,
the looks of a trial stand together and by step, so that one pass finds the first strictly better
one and the last miss before it. A trial whose looks stand otherwise is named, for the plain way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from results.schema import METRIC_COLUMNS
from results.targets.target import Target

_KEYS_READ = 256
"""Texts of ``metrics`` looked into, a batch, for the names of what is measured."""

Places = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Batch:
    """Rows of measurements as stretches of one trial each, so that what is asked of trials is
    asked once a stretch, not once a row."""

    trial: Places
    """The trial of each stretch, by its place; (k,)."""
    starts: Places
    """The row at which each begins, ascending from 0; (k,)."""
    step: Places
    """Of each row, (n,)."""
    value: Numbers | None
    """The metric, NaN where there is none; (n,)."""

    def by_row(self, each: NDArray[Any]) -> NDArray[Any]:
        """What is said of each stretch (k,), of its rows (n,)."""
        return np.repeat(each, np.diff(self.starts, append=len(self.step)))

    def rows(self, keep: NDArray[np.bool_]) -> Batch:
        """Some of the rows, (n,)."""
        if keep.all():
            return self
        left = np.add.reduceat(keep, self.starts, dtype=np.int64)
        some = left > 0
        left = left[some]
        value = None if self.value is None else self.value[keep]
        return Batch(self.trial[some], np.cumsum(left) - left, self.step[keep], value)


@dataclass(frozen=True)
class FirstHits:
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


def first_hits(
    batches: Iterable[pa.RecordBatch], trials: Sequence[str], runs: Sequence[str], target: Target
) -> FirstHits:
    """Where each of ``trials`` first was strictly better than ``target``.

    ``batches`` have the columns trial, run, step and ``column_of(target.metric)``; text may be
    dictionary-encoded. A row counts if its trial is among ``trials`` with its run at that place in
    ``runs``. A look without a value is no look.
    """
    search = _Search(len(trials), target)
    for batch in live(batches, trials, runs, target.metric):
        search.add(batch)
    reached = np.isfinite(search.first)
    return FirstHits(
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
    ``runs``, if there are any. ``Batch.trial`` is the place among ``trials``.

    ``batches`` have the columns that ``first_hits`` asks for; without a ``metric``, no values.
    """
    places = {name: place for place, name in enumerate(trials)}
    known: dict[str, int] = {}
    for run in runs:
        if run is not None:
            known.setdefault(run, len(known))
    run_of = np.array([-2 if run is None else known[run] for run in runs], np.int64)
    for batch in batches:
        if not len(batch):
            continue
        trial, commit = (_Coded.of(batch.column(name)) for name in ("trial", "run"))
        changes = trial.codes[1:] != trial.codes[:-1]
        changes |= commit.codes[1:] != commit.codes[:-1]
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
        place = trial.places(places, starts)
        keep = place >= 0
        if len(run_of):
            keep &= run_of[place] == commit.places(known, starts)
        if not keep.any():
            continue
        step = batch.column("step").to_numpy(zero_copy_only=False)
        value = None if metric is None else _values(batch.column(column_of(metric)), metric)
        found = Batch(place, starts, step, value)
        yield found if keep.all() else found.rows(found.by_row(keep))


class _Search:
    def __init__(self, trials: int, target: Target) -> None:
        self._target = target
        self.first = np.full(trials, np.inf)
        self.miss = np.zeros(trials)
        self.last = np.full(trials, -1, np.int64)
        self.scattered = np.zeros(trials, bool)

    def add(self, batch: Batch) -> None:
        assert batch.value is not None
        looked = ~np.isnan(batch.value)
        if not looked.any():
            return
        batch = batch.rows(looked)
        trial, starts, step, value = batch.trial, batch.starts, batch.step, batch.value
        assert value is not None
        hit = (
            value < self._target.value
            if self._target.lower_is_better
            else (value > self._target.value)
        )
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


@dataclass(frozen=True)
class _Coded:
    """A column of text as codes (n,) of some names, the last code for null."""

    codes: NDArray[Any]
    names: list[str]

    @classmethod
    def of(cls, column: pa.Array) -> _Coded:
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names, codes = column.dictionary.to_pylist(), column.indices
        if codes.null_count:
            codes = codes.fill_null(len(names))
        return cls(codes.to_numpy(zero_copy_only=False), names)

    def places(self, places: dict[str, int], rows: Places) -> Places:
        """The place of the text of each of ``rows``, -1 for one that has none."""
        table = np.array([*(places.get(name, -1) for name in self.names), -1], np.int64)
        return table[self.codes[rows]]


def _values(column: pa.Array, metric: str) -> Numbers:
    if not pa.types.is_string(column.type):
        return _numbers(column)
    # A name between quotes is a key: quotes within a text have a backslash before them.
    pattern = rf'"{re.escape(metric)}":\s*"?(?P<value>[^",}}]*)'
    try:
        return _numbers(pc.struct_field(pc.extract_regex(column, pattern), [0]).cast(pa.float64()))
    except pa.ArrowInvalid:
        pass  # a number that only JSON can read
    present = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.full(len(column), np.nan)
    found = json.loads(f"[{','.join(column.drop_null().to_pylist())}]")
    values[present] = [_float(each.get(metric)) for each in found]
    return values


def _float(value: Any) -> float:
    return np.nan if value is None else float(value)


def _numbers(column: pa.Array) -> Numbers:
    """As float64, null as NaN."""
    found: Numbers = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    return found
