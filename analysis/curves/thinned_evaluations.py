"""Steps to target as they would be with every second evaluation dropped.

A finer evaluation grid finds earlier chance hits, so the grid is part of a result. A regime
that moves when the grid is thinned depends on the grid and not on the workload alone.

Evaluations that ended after a part of their split leave brackets as wide as they were: what is kept
of them neither is a hit nor a miss, where its interval does not say so.

Measurements are read for the evaluations of each study, and for the first kept evaluations of
trials that went on after their target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from results.targets.evaluations import HIT, MAYBE, Evaluations

Places = NDArray[np.int64]
Grids = Mapping[int, NDArray[np.float64]]
"""The evaluated steps of each study, ascending."""

_GRIDS = """
SELECT study, step, row FROM evaluations WHERE study >= 0
GROUP BY GROUPING SETS ((study, step), (row))"""
_LATER = "FROM evaluations JOIN kept USING (study, step)"
_FIRSTS = f"""
SELECT row, min(step) AS first, min(step) FILTER ({HIT}) AS hit, min(step) FILTER ({MAYBE}) AS maybe
{_LATER} WHERE step >= since GROUP BY row"""
_MISSES = f"""
SELECT row, first, hit,
    max(step) FILTER (NOT coalesce({MAYBE}, false) AND step < coalesce(maybe, step + 1)) AS miss
{_LATER} JOIN firsts USING (row) WHERE step >= since GROUP BY row, first, hit"""


def every_second(trials: pd.DataFrame, measured: Evaluations) -> pd.DataFrame | None:
    """``trials`` with steps_to_target and last_miss on the first, third, fifth … evaluation of each
    study; None if no trial with a bracket has measurements.

    A trial that was stopped at a dropped evaluation is taken to reach the target at the next one
    kept; for one that was trained on the measurements decide. Trials without a bracket, or without
    measurements, stay. One that was dominated cannot reach it before the kept evaluation that
    follows: it counts as run to there.
    """
    hit = (trials["steps_to_target"].notna() & trials["last_miss"].notna()).to_numpy()
    study, _ = pd.factorize(trials["study"])
    once = np.flatnonzero(hit)[~trials.loc[hit, "trial"].duplicated().to_numpy()]
    names = trials["trial"].to_numpy(object)[once]
    grids, recorded = _grids(names, study[once], measured)
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
        evaluated = grids.get(which, np.zeros(0))
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
        first, hits, before = _first_hits(
            trials.iloc[rows], metric, study[rows], steps[rows], grids, measured
        )
        late = hits > first
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
    names: NDArray[np.object_], study: Places, measured: Evaluations
) -> tuple[Grids, NDArray[np.object_]]:
    """The grid of each study, from the trials ``names`` and the ``study`` of each; and those of the
    trials that have measurements."""
    evaluated = measured.select(_GRIDS, {"trial": names, "study": study})
    recorded = names[evaluated["row"].dropna().to_numpy(int)]
    steps = evaluated[evaluated["step"].notna()].sort_values("step").groupby("study")["step"]
    return {which: each.to_numpy(float) for which, each in steps}, recorded  # type: ignore[misc]


def _first_hits(
    trials: pd.DataFrame,
    metric: str,
    study: Places,
    steps: NDArray[np.floating[Any]],
    grids: Grids,
    measured: Evaluations,
) -> tuple[NDArray[np.floating[Any]], ...]:
    """The first kept evaluation of each trial from its ``steps`` on, the first of these that is
    better than its target, and the last miss before all that may be; NaN where there is none.

    ``trials`` has each trial once, all of one metric, and ``study`` and ``steps`` are theirs; (n,).
    """
    kept = [(which, int(step)) for which, grid in grids.items() for step in grid[::2]]
    names, at = zip(*kept, strict=True)
    hits = measured.select(
        _MISSES,
        {
            "trial": trials["trial"],
            "study": study,
            "since": steps,
            "goal": trials["target_value"].to_numpy(dtype=float),
            "lower_is_better": trials["lower_is_better"].fillna(True).to_numpy(dtype=bool),
        },
        metric,
        first={"firsts": _FIRSTS},
        tables={"kept": pa.table({"study": names, "step": at})},
    )
    hits = hits.set_index("row").reindex(range(len(trials)))
    return tuple(hits[name].to_numpy(dtype=float) for name in ("first", "hit", "miss"))
