"""What is missing of a study, round by round, and how long it will take: pure logic on the study
and the records of its trials.

A study's search table is drawn in *waves*. The first holds rows 0-15; each later round draws as
many rows as its goal (32, 64, … up to the trials wanted) lacks in feasible trials, once; the last
round goes on until the goal is met or four times as many rows are drawn. A wave is decided when all
rows before it are settled, and from those rows alone: which rows are drawn depends neither on the
order of packs nor on restarts. Where a sweep may stop itself after any round (``interim``), each
goes on as the last one does, and keeps as many trials exact.
"""

from __future__ import annotations

import math
import statistics
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from experiments.plan import Outcome, Study, Trial

if TYPE_CHECKING:
    import pandas as pd

FIRST_ROUND = 16
_SECONDS = ["train_seconds", "evaluation_seconds", "other_seconds"]
T = TypeVar("T")


class Wanted(Protocol):
    """What a study asks for: a ``Study``, or its row in the results."""

    @property
    def trials(self) -> int: ...
    @property
    def budget_steps(self) -> int: ...
    @property
    def stop_at_target(self) -> bool: ...
    @property
    def keep(self) -> int | None: ...
    @property
    def stops_itself(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """How a trial has ended, in terms of the study's present target."""

    status: str
    stop_reason: str
    steps_run: int
    steps_to_target: int | None = None
    fresh: bool = True
    """Whether it ended in this run. A failed trial of an earlier run is trained once more."""
    run: str | None = None
    """The commit that recorded it."""

    @classmethod
    def of(cls, outcome: Outcome, run: str | None = None) -> Record:
        return cls(
            status=outcome.status,
            stop_reason=outcome.stop_reason,
            steps_run=outcome.steps_run,
            steps_to_target=outcome.steps_to_target,
            run=run,
        )


@dataclass(frozen=True, kw_only=True)
class Wave:
    """Rows of a study's search table that are to be trained now."""

    round: int
    trials: tuple[Trial, ...]
    """The trials of it that are not settled."""
    keep: int | None
    """How many of the best stay exact in it; ``None``: all."""


Lookup = Callable[[Trial], Record | None]


def goals(trials: int) -> tuple[int, ...]:
    """Feasible trials a study is to have after each round: 16, 32, 64 … and ``trials``."""
    steps, goal = [], FIRST_ROUND
    while goal < trials:
        steps.append(goal)
        goal *= 2
    return (*steps, trials)


def cutoff(hits: Sequence[int], keep: int | None) -> int | None:
    """X(r), the ``keep``-th of steps to target in ascending order; ``None`` when there are fewer.

    A trial that has run so far without a hit is neither among the ``keep`` smallest nor a tie.
    """
    return hits[keep - 1] if keep is not None and len(hits) >= keep else None


def settled(study: Wanted, record: Record | None, dominated_at: int | None) -> bool:
    """Whether a trial needs no (more) training under the study's present budget and target.

    ``dominated_at`` is the study's present ``cutoff``: a keep that was raised, or a target that was
    hardened, moves it and reopens the trials that were stopped short of it.
    """
    if record is None:
        return False
    if record.status == "INFEASIBLE":
        return True
    if record.stop_reason == "error":
        return record.fresh
    if record.steps_run >= study.budget_steps:
        return True
    if not study.stop_at_target:
        return False
    if record.steps_to_target is not None:
        return True
    return dominated_at is not None and record.steps_run >= dominated_at


def wave(
    study: Study,
    rows: Callable[[int, int], Sequence[Trial]],
    max_rows: int,
    lookup: Lookup,
    opens: Callable[[int], bool] = lambda _: True,
) -> Wave | None:
    """The study's open wave, or ``None`` when the study has all that it wants.

    ``rows(start, stop)`` gives rows of the search table. What an earlier run that wanted more
    trials recorded in later rows stops none of these: the best of them is theirs alone.
    ``opens``: whether a round may be drawn; none is behind one that may not.
    """
    for number, keep, missing in _stages(_Drawn(study, lookup), rows, max_rows, opens):
        if missing:
            return Wave(round=number, trials=missing, keep=keep)
    return None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a study wants by now, and how much of it is missing."""

    wanted: int
    """Feasible trials of its search, trials that its enlargements so far have added, and, when
    these are there, repeats of the best."""
    left: int
    """Those that are missing, without failed ones."""
    failed: int
    """Trials whose own code raised."""
    retried: int
    """How many of the failed ones this run tries again (``Record.fresh``)."""


def counts(
    study: Wanted,
    max_rows: int,
    lookup: Callable[[int], Record | None],
    extensions: int = 0,
    repeats: Callable[[int], Sequence[Record | None]] = lambda _: (),
) -> Counts:
    """The counts of the driver and of ``status`` alike: nothing is left or tried again where there
    is no wave, and only there. A row whose trial is missing is taken to be feasible.

    Args:
        lookup: the record of a row of the search table, by its index; from ``max_rows`` on, of the
            trials that enlargements of the space have added, in their order.
        extensions: how many these are.
        repeats: the records of a trial's repeats, by the index that ``lookup`` knows it by.
    """
    drawn: _Drawn[int] = _Drawn(study, lambda row: _ended(lookup(row)))
    stages = _stages(drawn, lambda start, stop: range(start, min(stop, max_rows)), max_rows)
    missing = {row for _, _, rows in stages for row in rows}
    added = range(max_rows, max_rows + extensions)
    held = {row: record for row in (*drawn.rows, *added) if (record := lookup(row)) is not None}
    hits = [
        (record.steps_to_target, row)
        for row, record in held.items()
        if record.steps_to_target is not None
    ]
    limit = cutoff(sorted(steps for steps, _ in hits), study.keep)
    wanted = study.trials + extensions
    left = len(missing) + sum(not settled(study, _ended(held.get(row)), limit) for row in added)
    records = [*held.values()]
    if hits and not left:
        again = repeats(min(hits)[1])
        wanted += len(again)
        left = sum(not settled(study, _ended(record), None) for record in again)
        records += [record for record in again if record is not None]
    failed = [record for record in records if record.stop_reason == "error"]
    retried = sum(not record.fresh for record in failed)
    return Counts(wanted=wanted, left=left, failed=len(failed), retried=retried)


def _ended(record: Record | None) -> Record | None:
    """The record, of a failed trial as if that were not tried again."""
    return record if record is None or record.fresh else replace(record, fresh=True)


def _stages(
    drawn: _Drawn[T],
    rows: Callable[[int, int], Sequence[T]],
    max_rows: int,
    opens: Callable[[int], bool] = lambda _: True,
) -> Iterator[tuple[int, int | None, tuple[T, ...]]]:
    """The waves of a study in order: the round, ``keep`` in it, and its rows that are missing.

    The next is that after these have become feasible trials.
    """
    study = drawn.study
    steps = goals(study.trials)
    exact = keep_in_round(study, 0)
    for number, goal in enumerate(steps):
        if not opens(number):
            return
        last = study.stops_itself or number == len(steps) - 1
        keep = keep_in_round(study, number)
        while True:
            lacking = max(0, min(goal - drawn.feasible(exact), max_rows - len(drawn.rows)))
            if lacking:
                start = len(drawn.rows)
                drawn.extend(rows(start, start + lacking))
                yield number, keep, drawn.open(start, keep)
            yield number, keep, drawn.open(0, keep)
            exact = keep
            if not last or not lacking:
                break


class _Drawn(Generic[T]):
    """The first rows of a study's table with their records, each looked up once."""

    def __init__(self, study: Wanted, lookup: Callable[[T], Record | None]) -> None:
        self.rows: list[T] = []
        self.study, self._lookup = study, lookup
        self._records: list[Record | None] = []
        self._hits: list[int] = []
        """Steps to target, the least first."""
        self._lost: list[int] = []
        """Steps of those that diverged."""

    def extend(self, rows: Sequence[T]) -> None:
        self.rows.extend(rows)
        for row in rows:
            record = self._lookup(row)
            self._records.append(record)
            if record is not None and record.steps_to_target is not None:
                insort(self._hits, record.steps_to_target)
            if record is not None and record.status == "INFEASIBLE":
                self._lost.append(record.steps_run)

    def open(self, start: int, keep: int | None) -> tuple[T, ...]:
        """Those from row ``start`` on that are not settled."""
        study, limit = self.study, self._cutoff(keep)
        rows = zip(self.rows[start:], self._records[start:], strict=True)
        return tuple(row for row, record in rows if not settled(study, record, limit))

    def feasible(self, keep: int | None) -> int:
        """How many count towards the study's ``trials``.

        A trial that diverged after the rows' ``cutoff`` counts: under dominated stopping it may as
        well have been cut off there, and whether it was must not change which rows are drawn. A
        failed trial counts, so that a broken workload is not drawn four times over.
        """
        limit = self._cutoff(keep)
        lost = sum(1 for steps in self._lost if limit is None or steps <= limit)
        return len(self.rows) - lost

    def _cutoff(self, keep: int | None) -> int | None:
        return cutoff(self._hits, keep) if self.study.stop_at_target else None


def keep_in_round(study: Wanted, number: int) -> int | None:
    """How many of the best trials stay exact in round ``number``: in proportion to its goal."""
    steps = goals(study.trials)
    if study.keep is None or study.stops_itself or number == len(steps) - 1:
        return study.keep
    return math.ceil(study.keep * steps[number] / study.trials)


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What is missing of a study, and what its trials have cost."""

    trials: int
    """Trials that are missing."""
    seconds_per_trial: float | None
    """A worker's seconds per feasible trial so far; ``None`` before the first."""
    cost: float | None
    """See ``trial_cost``; ``None`` where the study's row does not have it."""

    @classmethod
    def of(
        cls, missing: int, feasible: int, pack_seconds: Mapping[str, float], cost: float | None
    ) -> Remaining:
        """For a study with ``feasible`` trials, whose packs have taken ``pack_seconds``."""
        timed = feasible and pack_seconds
        seconds = sum(pack_seconds.values()) / feasible if timed else None
        return cls(trials=missing, seconds_per_trial=seconds, cost=cost)


def pack_seconds(trials: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Seconds that the packs of each study have taken so far, from rows of the trials table."""
    total = trials[_SECONDS].sum(axis=1)
    by_pack = total.groupby([trials["study"], trials["pack"]]).max()
    seconds: dict[str, dict[str, float]] = {}
    for study, pack, taken in by_pack.reset_index().itertuples(index=False, name=None):
        seconds.setdefault(study, {})[pack] = float(taken)
    return seconds


def evaluation_share(trials: pd.DataFrame) -> float | None:
    """The part of all packs' seconds that evaluations took, from rows of the trials table; ``None``
    where no seconds are known."""
    # A row has what its pack had taken when the trial ended.
    by_pack = trials.groupby(["study", "pack"])[_SECONDS].max().sum()
    total = float(by_pack.sum())
    return float(by_pack["evaluation_seconds"]) / total if total else None


def trial_cost(budget_steps: int, batch_size: float) -> float:
    """A study's longest trial, in steps that each cost a fixed part and their examples."""
    return budget_steps * (1 + batch_size / 50)


def worker_seconds(studies: Iterable[Remaining]) -> float | None:
    """Seconds that one worker would take for all that is left.

    A study's trials cost what its own have cost; those of a study without any cost by
    ``trial_cost``, at the median rate of the others. ``None`` where no trial has ended at all, or
    where a study has no cost.
    """
    every = list(studies)
    timed = [(s.seconds_per_trial, s.cost) for s in every]
    rates = [seconds / cost for seconds, cost in timed if seconds is not None and cost]
    usual = statistics.median(rates) if rates else None
    total = 0.0
    for study in every:
        seconds = study.seconds_per_trial
        if seconds is None and usual is not None and study.cost is not None:
            seconds = usual * study.cost
        if study.trials and seconds is None:
            return None
        total += study.trials * (seconds or 0.0)
    return total


def seconds_left(studies: Iterable[Remaining], packs: int) -> float | None:
    """Seconds until all is done with this many packs at once; ``None`` if it cannot be
    estimated."""
    total = worker_seconds(studies)
    return total / packs if packs and total is not None else None
