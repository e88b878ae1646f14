"""Steps to target as they would be with every second evaluation dropped.

A finer evaluation grid finds earlier chance hits, so the grid is part of a result. A regime
that moves when the grid is thinned depends on the grid and not on the workload alone.

Evaluations that ended after a part of their split leave brackets as wide as they were: what is kept
of them neither is a hit nor a miss, where its interval does not say so.

Measurements are read twice, batch by batch: for the evaluations of each study, and for the first
kept evaluations of trials that went on after their target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from results.storage.dataset import retrying
from results.targets.evaluations import Batch, interval_of

Places = NDArray[np.int64]
Numbers = NDArray[np.floating[Any]]
Grids = list[Places]
"""The evaluated steps of each study, ascending."""


class Evaluations(Protocol):
    """Measurements that can be read several times (``results.targets.evaluations``)."""

    def has(self, metric: str) -> bool:
        """Whether ``of`` gives the values of this metric."""

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        """The evaluations of ``trials``, by their places there, and with the values of
        ``metric``."""


class Frame:
    """A frame of measurements (columns trial, step and metrics) as one batch."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows = rows

    def has(self, metric: str) -> bool:
        return metric in self._rows

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        place = pd.Index(trials).get_indexer(pd.Index(self._rows["trial"]))
        among = place >= 0
        if not among.any():
            return
        value = self._rows[metric].to_numpy(dtype=float)[among] if metric else None
        interval = interval_of(self._rows[among], metric) if metric else None
        place, step = place[among].astype(np.int64), self._rows["step"].to_numpy(np.int64)[among]
        starts = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
        yield Batch(place[starts], starts, step, value, interval)


def every_second(trials: pd.DataFrame, measured: Evaluations) -> pd.DataFrame | None:
    """``trials`` with steps_to_target and last_miss on the first, third, fifth … evaluation of each
    study; None if no trial with a bracket has measurements.

    A trial that was stopped at a dropped evaluation is taken to reach the target at the next one
    kept; for one that was trained on the measurements decide. Trials without a bracket, or without
    measurements, stay. One that was dominated cannot reach it before the kept evaluation that
    follows: it counts as run to there.
    """
    hit = (trials["steps_to_target"].notna() & trials["last_miss"].notna()).to_numpy()
    study, studies = pd.factorize(trials["study"])
    once = np.flatnonzero(hit)[~trials.loc[hit, "trial"].duplicated().to_numpy()]
    names = trials["trial"].to_numpy(object)[once]
    grids, recorded = retrying(lambda: _grids(names, study[once], len(studies), measured))
    hit = hit & trials["trial"].isin(recorded).to_numpy()
    if not hit.any():
        return None
    steps, misses, ran = (
        pd.to_numeric(trials[name]).astype(float).to_numpy(copy=True)
        for name in ("steps_to_target", "last_miss", "steps_run")
    )
    missed = misses.copy()
    wide = np.zeros(len(trials), bool)
    if "undecided_evaluations" in trials:
        wide = trials["undecided_evaluations"].gt(0).to_numpy(dtype=bool, na_value=False)
    dominated = trials["stop_reason"].eq("dominated").to_numpy() & np.isnan(steps)
    dominated_places = _by_study(study, dominated)
    for which, places in _by_study(study, hit).items():
        evaluated = grids[which].astype(float)
        if len(evaluated) < 2:
            continue
        places = places[np.isin(steps[places], evaluated)]
        at = np.searchsorted(evaluated, steps[places])
        odd = at % 2 == 1
        beyond = evaluated[-1] * evaluated[-1] / (evaluated[-2] or evaluated[-1] / 2)
        grid = np.append(evaluated, np.ceil(beyond))
        steps[places] = grid[at + odd]
        misses[places] = np.where(at < 2, np.where(odd, evaluated[0], 0.0), grid[at - 2 + odd])
        kept = grid[::2]
        # No kept evaluation after their last miss is a miss for certain.
        of_wide = places[wide[places]]
        earlier = np.searchsorted(kept, missed[of_wide], side="right")
        misses[of_wide] = np.where(earlier > 0, kept[earlier - 1], 0.0)
        cut = dominated_places.get(which, np.zeros(0, np.int64))
        following = np.searchsorted(kept, ran[cut], side="right")
        ran[cut] = np.where(
            following < len(kept), kept[np.minimum(following, len(kept) - 1)], ran[cut]
        )
    for metric, of_metric in _by_metric(trials):
        if not measured.has(metric) or trials["trial"][of_metric].duplicated().any():
            continue
        rows = np.flatnonzero(of_metric & hit)
        arguments = trials.iloc[rows], metric, study[rows], steps[rows], grids, measured
        first, hits, before = retrying(partial(_first_hits, *arguments))
        late = np.isfinite(hits) & (hits > first)
        steps[rows] = np.where(late, hits, steps[rows])
        known = late & ~np.isnan(before) & ~wide[rows]
        misses[rows] = np.where(known, before, misses[rows])
    return trials.assign(steps_to_target=steps, last_miss=misses, steps_run=ran)


def _by_metric(trials: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each metric with the rows of it, (n,): all of them, or where a trial is on the curves of
    several targets those of one target at a time."""
    metrics, goals = trials["target_metric"], trials["target_value"]
    for metric in metrics.dropna().unique():
        of_metric = metrics.eq(metric).to_numpy(dtype=bool)
        if not trials["trial"][of_metric].duplicated().any():
            yield metric, of_metric
            continue
        for goal in goals[of_metric].unique():
            yield metric, of_metric & goals.eq(goal).to_numpy(dtype=bool)


def _by_study(study: Places, mask: NDArray[np.bool_]) -> dict[int, Places]:
    """The places of ``mask`` by study, those of none left out."""
    places = np.flatnonzero(mask & (study >= 0))
    codes = study[places]
    return {int(which): places[codes == which] for which in pd.unique(codes)}


def _grids(
    names: NDArray[np.object_], study: Places, count: int, measured: Evaluations
) -> tuple[Grids, NDArray[np.object_]]:
    """The grid of each of ``count`` studies, from the trials ``names`` and the ``study`` of each;
    and those of the trials that have measurements."""
    grids = [np.zeros(0, np.int64) for _ in range(count)]
    recorded = np.zeros(len(names), bool)
    for batch in measured.of(names.tolist()) if len(names) else ():
        recorded[batch.trial] = True
        for which, rows in _rows_by_study(study[batch.trial], batch):
            grids[which] = np.union1d(grids[which], pd.unique(batch.step[rows]))
    return grids, names[recorded]


def _rows_by_study(study: Places, batch: Batch) -> Iterator[tuple[int, slice]]:
    """Consecutive rows of one study, with it; ``study`` is that of each of the batch's trials,
    (k,)."""
    if not len(study):
        return
    firsts = np.flatnonzero(np.concatenate([[True], study[1:] != study[:-1]]))
    ends = np.append(batch.starts[firsts[1:]], len(batch.step))
    for first, start, end in zip(firsts, batch.starts[firsts], ends, strict=True):
        if study[first] >= 0:
            yield int(study[first]), slice(start, end)


def _first_hits(
    trials: pd.DataFrame,
    metric: str,
    study: Places,
    steps: Numbers,
    grids: Grids,
    measured: Evaluations,
) -> tuple[Numbers, Numbers, Numbers]:
    """The first kept evaluation of each trial from its ``steps`` on, the first of these that is
    better than its target, and the last miss before all that may be; infinite and NaN where there
    is none.

    ``trials`` has each trial once, all of one metric, and ``study`` and ``steps`` are theirs; (n,).
    """
    names = trials["trial"].tolist()
    goals = trials["target_value"].to_numpy(dtype=float)
    lower_is_better = trials["lower_is_better"].fillna(True).to_numpy(dtype=bool)
    first, hits, opens = np.full((3, len(names)), np.inf)
    misses = np.full(len(names), np.nan)
    # One pass is enough for evaluations in the order of steps. A miss that lies beyond a hit
    # which was read later does not count: a second pass leaves it out.
    for _ in range(2):
        for batch in measured.of(names, metric) if names else ():
            later = batch.rows(batch.step >= batch.by_row(steps[batch.trial]))
            on_grid = np.zeros(len(later.step), bool)
            for which, rows in _rows_by_study(study[later.trial], later):
                on_grid[rows] = np.searchsorted(grids[which], later.step[rows]) % 2 == 0
            kept = later.rows(on_grid)
            assert kept.value is not None
            goal, lower = (kept.by_row(of[kept.trial]) for of in (goals, lower_is_better))
            if not len(kept.step):
                continue
            best, worst = kept.ends(lower)
            better, maybe = (np.where(lower, end < goal, end > goal) for end in (worst, best))
            # By segments: ``at`` takes several times as long a row.
            trial, starts, step = kept.trial, kept.starts, kept.step.astype(float)
            np.minimum.at(first, trial, np.minimum.reduceat(step, starts))
            hit = np.where(better, step, np.inf)
            np.minimum.at(hits, trial, np.minimum.reduceat(hit, starts))
            np.minimum.at(opens, trial, np.minimum.reduceat(np.where(maybe, step, np.inf), starts))
            before = np.where(~maybe & (step < kept.by_row(opens[trial])), step, np.nan)
            np.fmax.at(misses, trial, np.fmax.reduceat(before, starts))
        if not (misses > opens).any():
            break
        misses = np.full(len(names), np.nan)
    return first, hits, misses
