"""Steps to target as they would be with every second look dropped.

Finer looks find earlier lucky crossings, so the evaluation grid is part of a result. A regime that
moves when the grid is thinned is the grid's, not the workload's.

Measurements are passed over twice, batch by batch: for the looks of each study, and for the first
kept looks of trials that went on after their target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from results.storage.dataset import retrying
from results.targets.evaluations import Batch

Places = NDArray[np.int64]
Numbers = NDArray[np.floating[Any]]


class Evaluations(Protocol):
    """Measurements that can be read as often as one likes (``results.targets.evaluations``)."""

    def has(self, metric: str) -> bool:
        """Whether ``of`` gives the values of this metric."""

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        """The looks at ``trials``, by their places there, and with the values of ``metric``."""


class Frame:
    """A frame of measurements (columns trial, step and metrics) as one batch."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows = rows

    def has(self, metric: str) -> bool:
        return metric in self._rows

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        place = pd.Index(trials).get_indexer(pd.Index(self._rows["trial"]))
        mine = place >= 0
        if not mine.any():
            return
        value = self._rows[metric].to_numpy(dtype=float)[mine] if metric else None
        place, step = place[mine].astype(np.int64), self._rows["step"].to_numpy(np.int64)[mine]
        starts = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
        yield Batch(place[starts], starts, step, value)


def every_second(trials: pd.DataFrame, measured: Evaluations) -> pd.DataFrame | None:
    """``trials`` with steps_to_target and last_miss on the first, third, fifth … look of each
    study; None if no trial with a bracket has measurements.

    A trial that was stopped at a dropped look is taken to reach the target at the next one kept;
    one that was trained on is asked. Trials without a bracket, or without measurements, stay. One
    that was dominated cannot reach it before the kept look that follows: it counts as run to there.
    """
    hit = (trials["steps_to_target"].notna() & trials["last_miss"].notna()).to_numpy()
    study, studies = pd.factorize(trials["study"])
    grids = _Grids.of(trials.loc[hit, "trial"], study[hit], len(studies), measured)
    hit = hit & trials["trial"].isin(grids.measured).to_numpy()
    if not hit.any():
        return None
    steps = pd.to_numeric(trials["steps_to_target"]).astype(float).to_numpy(copy=True)
    misses = pd.to_numeric(trials["last_miss"]).astype(float).to_numpy(copy=True)
    ran = pd.to_numeric(trials["steps_run"]).astype(float).to_numpy(copy=True)
    dominated = trials["stop_reason"].eq("dominated").to_numpy() & np.isnan(steps)
    cuts = _by_study(study, dominated)
    for which, places in _by_study(study, hit).items():
        looks = grids.looks[which].astype(float)
        if len(looks) < 2:
            continue
        places = places[np.isin(steps[places], looks)]
        at = np.searchsorted(looks, steps[places])
        odd = at % 2 == 1
        beyond = looks[-1] * looks[-1] / looks[-2]
        grid = np.append(looks, np.ceil(beyond))
        steps[places] = grid[at + odd]
        misses[places] = np.where(at < 2, np.where(odd, looks[0], 0.0), grid[at - 2 + odd])
        cut = cuts.get(which, np.zeros(0, np.int64))
        kept = grid[::2]
        following = np.searchsorted(kept, ran[cut], side="right")
        ran[cut] = np.where(
            following < len(kept), kept[np.minimum(following, len(kept) - 1)], ran[cut]
        )
    metrics = trials["target_metric"]
    for metric in filter(measured.has, metrics.dropna().unique()):
        some = metrics.eq(metric).to_numpy(dtype=bool)
        if not trials["trial"][some].duplicated().any():
            rows = np.flatnonzero(some & hit)
            asked = _Asked.of(trials.iloc[rows], study[rows], steps[rows], grids)
            steps[rows], misses[rows] = asked.trained_on(measured, metric, misses[rows])
    return trials.assign(steps_to_target=steps, last_miss=misses, steps_run=ran)


def _by_study(study: Places, mask: NDArray[np.bool_]) -> dict[int, Places]:
    """The places of ``mask`` by study, those of none left out."""
    places = np.flatnonzero(mask & (study >= 0))
    codes = study[places]
    return {int(which): places[codes == which] for which in pd.unique(codes)}


@dataclass(frozen=True)
class _Grids:
    """The looks of each study, in steps and sorted, and the trials that have any."""

    looks: list[Places]
    measured: NDArray[np.object_]

    @classmethod
    def of(cls, trials: pd.Series, study: Places, count: int, measured: Evaluations) -> _Grids:
        once = ~trials.duplicated().to_numpy()
        names = trials.to_numpy(object)[once]
        return retrying(lambda: cls._read(names, study[once], count, measured))

    @classmethod
    def _read(
        cls, names: NDArray[np.object_], study: Places, count: int, read: Evaluations
    ) -> _Grids:
        looks = [np.zeros(0, np.int64) for _ in range(count)]
        seen = np.zeros(len(names), bool)
        for batch in read.of(names.tolist()) if len(names) else ():
            seen[batch.trial] = True
            for which, rows in _of_one_study(study[batch.trial], batch):
                looks[which] = np.union1d(looks[which], pd.unique(batch.step[rows]))
        return cls(looks, names[seen])

    def kept(self, study: Places, batch: Batch) -> NDArray[np.bool_]:
        """Whether a look is the first, third, fifth … of its study, by ``study`` of each stretch;
        (n,)."""
        kept = np.zeros(len(batch.step), bool)
        for which, rows in _of_one_study(study, batch):
            kept[rows] = np.searchsorted(self.looks[which], batch.step[rows]) % 2 == 0
        return kept


def _of_one_study(study: Places, batch: Batch) -> Iterator[tuple[int, slice]]:
    """Rows that stand together, with their study; ``study`` is that of each stretch, (k,)."""
    if not len(study):
        return
    firsts = np.flatnonzero(np.concatenate([[True], study[1:] != study[:-1]]))
    ends = np.append(batch.starts[firsts[1:]], len(batch.step))
    for first, start, end in zip(firsts, batch.starts[firsts], ends, strict=True):
        if study[first] >= 0:
            yield int(study[first]), slice(start, end)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Trials of one metric, each once: where one went on after its target, it is asked for the
    first kept look from ``steps`` on that is better than it. (n,) each."""

    names: list[str]
    study: Places
    steps: Numbers
    goal: Numbers
    lower: NDArray[np.bool_]
    grids: _Grids

    @classmethod
    def of(cls, trials: pd.DataFrame, study: Places, steps: Numbers, grids: _Grids) -> _Asked:
        return cls(
            names=trials["trial"].tolist(),
            study=study,
            steps=steps,
            goal=trials["target_value"].to_numpy(dtype=float),
            lower=trials["lower_is_better"].fillna(True).to_numpy(dtype=bool),
            grids=grids,
        )

    def trained_on(
        self, measured: Evaluations, metric: str, misses: Numbers
    ) -> tuple[Numbers, Numbers]:
        """``steps`` and ``misses`` of all, renewed of those that missed at the next kept look."""
        asked, found, before = retrying(lambda: self._first(measured, metric))
        late = np.isfinite(found) & (found > asked)
        return np.where(late, found, self.steps), np.where(late, before, misses)

    def _first(self, measured: Evaluations, metric: str) -> tuple[Numbers, Numbers, Numbers]:
        """The first kept look of each, the first that is better, and the last miss before that."""
        asked, found = np.full((2, len(self.names)), np.inf)
        misses = np.full(len(self.names), np.nan)
        # What comes in the order of steps is done at once. Where a miss lies beyond what was found
        # later, it did not.
        for _ in range(2):
            for trial, step, better in self._kept(measured, metric):
                np.minimum.at(asked, trial, step)
                np.minimum.at(found, trial[better], step[better])
                before = ~better & (step < found[trial])
                np.fmax.at(misses, trial[before], step[before])
            wrong = misses > found
            if not wrong.any():
                break
            misses = np.full(len(self.names), np.nan)
        return asked, found, misses

    def _kept(
        self, measured: Evaluations, metric: str
    ) -> Iterator[tuple[Places, Places, NDArray[np.bool_]]]:
        """The kept looks of the trials from their steps on, and which are better; (n,) each."""
        for batch in measured.of(self.names, metric) if self.names else ():
            later = batch.rows(batch.step >= batch.by_row(self.steps[batch.trial]))
            kept = later.rows(self.grids.kept(self.study[later.trial], later))
            assert kept.value is not None
            goal, lower = (kept.by_row(of[kept.trial]) for of in (self.goal, self.lower))
            better = np.where(lower, kept.value < goal, kept.value > goal)
            yield kept.by_row(kept.trial), kept.step, better
