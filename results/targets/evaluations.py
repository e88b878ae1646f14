"""The evaluations of many trials, batch by batch: memory holds one batch, whatever their number.

evaluations = Evaluations([results.open("results/runs")])
for batch in evaluations.of(["a", "b"], "validation_error"): …
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from results.schema import INTERVAL_COLUMNS, METRIC_COLUMNS
from results.storage.dataset import in_batches, reading
from results.storage.source import IDENTIFYING
from results.storage.tables import Tables
from results.targets.target import Target

_TEXTS_READ = 256
"""Number of texts of ``metrics`` in a batch that are read for the names of metrics."""

Places = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """What rows say of a metric on the whole split, where evaluations ended after a part of it."""

    partial: NDArray[np.bool_]
    """Whether the evaluation ended after a part, so that its value is the mean of that part, (n,).
    The others follow for these rows alone."""
    low: Numbers
    """The metric on the whole split is not below, (n,); infinite where there is no bound."""
    high: Numbers
    """Nor above, (n,)."""
    standard_error: Numbers
    """Of the mean, (n,); NaN where it is not known."""

    def rows(self, keep: NDArray[np.bool_]) -> Interval:
        """The rows that are to be kept, (n,)."""
        low, high, error = (each[keep] for each in (self.low, self.high, self.standard_error))
        return Interval(self.partial[keep], low, high, error)


@dataclass(frozen=True)
class Batch:
    """Rows of measurements in segments of one trial each, so that values of a trial are computed
    once per segment, not once per row."""

    trial: Places
    """The trial of each segment, by its place; (k,)."""
    starts: Places
    """The row at which each segment begins, ascending from 0; (k,)."""
    step: Places
    """The step of each row, (n,)."""
    value: Numbers | None
    """The metric, NaN where there is none; (n,)."""
    interval: Interval | None = None
    """None where each evaluation is of its whole split."""

    @property
    def partial(self) -> NDArray[np.bool_]:
        """Whether each evaluation ended after a part of its split, (n,)."""
        if self.interval is None:
            return np.zeros(len(self.step), bool)
        return self.interval.partial

    def ends(self, lower_is_better: bool | NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """The best and the worst value that the metric can have on the whole split, (n,) each; the
        same array where all evaluations are of whole splits."""
        assert self.value is not None
        if self.interval is None:
            return self.value, self.value
        known = self.interval
        low = np.where(known.partial, known.low, self.value)
        high = np.where(known.partial, known.high, self.value)
        return np.where(lower_is_better, low, high), np.where(lower_is_better, high, low)

    def decided(self, target: Target) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which evaluations may have passed the target, and which have for certain; (n,) each, the
        same where all are of whole splits."""
        best, worst = self.ends(target.lower_is_better)
        certain: NDArray[np.bool_] = target.hits(worst)
        return (certain if best is worst else target.hits(best)), certain

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value for each segment (k,), repeated for its rows (n,)."""
        return np.repeat(values, np.diff(self.starts, append=len(self.step)))

    def rows(self, keep: NDArray[np.bool_]) -> Batch:
        """The rows that are to be kept, (n,)."""
        if keep.all():
            return self
        sizes = np.add.reduceat(keep, self.starts, dtype=np.int64)
        segments = sizes > 0
        sizes = sizes[segments]
        value = None if self.value is None else self.value[keep]
        interval = None if self.interval is None else self.interval.rows(keep)
        starts = np.cumsum(sizes) - sizes
        return Batch(self.trial[segments], starts, self.step[keep], value, interval)


class Evaluations:
    """The measurements of one or several datasets; each call of ``of`` reads them again."""

    def __init__(self, sources: Sequence[Tables]) -> None:
        self._sources = sources

    def has(self, metric: str) -> bool:
        """Whether a metric has its own column; others are in JSON text and slow to read."""
        return metric in METRIC_COLUMNS

    def metrics(self) -> list[str]:
        """The names of the metrics that were measured.

        Raises:
            ResultsError: a broken file.
        """
        names: dict[str, None] = {}
        for source in self._sources:
            files = source.source.measurements(source.experiments)
            with reading(f"{source.root}/measurements"):
                batches = files.to_batches(columns=[*METRIC_COLUMNS, "metrics"])
                names |= dict.fromkeys(measured_metrics(batches))
        return [*names]

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        """The evaluations of ``trials``, by their places there, and with the values of ``metric``.

        Rows of other trials are left out. An evaluation without a value is NaN.

        Raises:
            ResultsError: a broken file.
            FileNotFoundError: a file was removed since it was listed: call again
                (``results.storage.dataset.retrying``).
        """
        wanted = pa.array(trials, pa.string())
        columns = ["trial", "run", "step", *([column_of(metric)] if metric else [])]
        for source in self._sources:
            rows = source.trial_rows.select(IDENTIFYING)  # all columns would be copied
            rows = rows.filter(pc.is_in(rows["trial"], wanted))
            if not len(rows):
                continue
            files, commits = source.with_trials(rows).measured(coded=["trial", "run"])
            runs = dict(zip(rows["trial"].to_pylist(), commits.to_pylist(), strict=True))
            with reading(f"{source.root}/measurements"):
                batches = in_batches(files, columns, INTERVAL_COLUMNS if metric else ())
                yield from live(batches, trials, [runs.get(name) for name in trials], metric)


def column_of(metric: str) -> str:
    """The column of measurements that holds a metric."""
    return metric if metric in METRIC_COLUMNS else "metrics"


def measured_metrics(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """The metrics of which ``batches`` (of ``METRIC_COLUMNS`` and ``metrics``) hold values."""
    columns: set[str] = set()
    keys: set[str] = set()
    for batch in batches:
        for name in METRIC_COLUMNS:
            if name not in columns and not np.isnan(_numbers(batch.column(name))).all():
                columns.add(name)
        texts = batch.column("metrics").drop_null()[:_TEXTS_READ].to_pylist()
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

    ``batches`` have the columns trial, run, step and ``column_of(metric)``, and those of
    ``schema.INTERVAL_COLUMNS`` or none of them; text may be dictionary-encoded. Without a
    ``metric`` there are no values.
    """
    places = {name: place for place, name in enumerate(trials)}
    numbers = {run: number for number, run in enumerate(dict.fromkeys(runs)) if run is not None}
    run_of = np.array([-2 if run is None else numbers[run] for run in runs], np.int64)
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
            keep &= run_of[place] == commit.places(numbers, starts)
        if not keep.any():
            continue
        step = batch.column("step").to_numpy(zero_copy_only=False)
        value = None if metric is None else _values(batch.column(column_of(metric)), metric)
        interval = None if metric is None else _interval(batch, metric)
        whole = Batch(place, starts, step, value, interval)
        yield whole if keep.all() else whole.rows(whole.by_row(keep))


@dataclass(frozen=True)
class _Coded:
    """A column of text as codes (n,) of names, the last code for null."""

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

    def places(self, places: Mapping[str, int], rows: Places) -> Places:
        """The place of the text of each of ``rows``, -1 for one that has none."""
        table = np.array([*(places.get(name, -1) for name in self.names), -1], np.int64)
        return table[self.codes[rows]]


def _interval(batch: pa.RecordBatch, metric: str) -> Interval | None:
    """What partial evaluations say of a metric; None where all are whole."""
    about, *columns = INTERVAL_COLUMNS
    if about not in batch.schema.names or batch[about].null_count == len(batch):
        return None
    named = pc.fill_null(pc.equal(batch[about], metric), False)
    return _bounded(
        batch[about].is_valid().to_numpy(zero_copy_only=False),
        named.to_numpy(zero_copy_only=False),
        *(_numbers(batch[name]) for name in columns),
    )


def interval_of(measurements: pd.DataFrame, metric: str) -> Interval | None:
    """The same of a frame with a row an evaluation, which need not have these columns."""
    about, *columns = INTERVAL_COLUMNS
    if about not in measurements or measurements[about].isna().all():
        return None
    return _bounded(
        measurements[about].notna().to_numpy(dtype=bool),
        measurements[about].eq(metric).to_numpy(dtype=bool, na_value=False),
        *(measurements[name].to_numpy(dtype=float, na_value=np.nan) for name in columns),
    )


def _bounded(
    partial: NDArray[np.bool_],
    named: NDArray[np.bool_],
    low: Numbers,
    high: Numbers,
    standard_error: Numbers,
) -> Interval:
    """From the columns of measurements, (n,) each; ``named``: whether they are about the metric,
    since they say nothing of another one."""
    return Interval(
        partial,
        np.where(named & ~np.isnan(low), low, -np.inf),
        np.where(named & ~np.isnan(high), high, np.inf),
        np.where(named, standard_error, np.nan),
    )


def _values(column: pa.Array, metric: str) -> Numbers:
    if not pa.types.is_string(column.type):
        return _numbers(column)
    # A name between quotes is a key: quotes within a text have a backslash before them.
    pattern = rf'"{re.escape(metric)}":\s*"?(?P<value>[^",}}]*)'
    try:
        return _numbers(pc.struct_field(pc.extract_regex(column, pattern), [0]).cast(pa.float64()))
    except pa.ArrowInvalid:
        pass  # a number that only the JSON parser reads
    present = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.full(len(column), np.nan)
    parsed = json.loads(f"[{','.join(column.drop_null().to_pylist())}]")
    cells = [each.get(metric) for each in parsed]
    values[present] = [np.nan if cell is None else float(cell) for cell in cells]
    return values


def _numbers(column: pa.Array) -> Numbers:
    """As float64, null as NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
