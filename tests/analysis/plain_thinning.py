"""Every second evaluation dropped the plain way, from one frame of all measurements: the twin of
``analysis.curves.thinned_evaluations``, which passes over batches of them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def every_second(trials: pd.DataFrame, measurements: pd.DataFrame) -> pd.DataFrame:
    """``trials`` with steps_to_target and last_miss on the first, third, fifth … look of each
    study.

    A trial that was stopped at a dropped look is taken to reach the target at the next one kept;
    one that was trained on is asked. Trials without a bracket, or without measurements, stay. One
    that was dominated cannot reach it before the kept look that follows: it counts as run to there.
    """
    hit = trials["steps_to_target"].notna() & trials["last_miss"].notna()
    hit &= trials["trial"].isin(measurements["trial"].unique())
    looked = measurements[measurements["trial"].isin(trials.loc[hit, "trial"])]
    steps = pd.to_numeric(trials["steps_to_target"]).astype(float).to_numpy(copy=True)
    misses = pd.to_numeric(trials["last_miss"]).astype(float).to_numpy(copy=True)
    ran = pd.to_numeric(trials["steps_run"]).astype(float).to_numpy(copy=True)
    dominated = trials["stop_reason"].eq("dominated").to_numpy() & np.isnan(steps)
    of_study = trials["study"].to_numpy(object)
    for study, rows in trials[hit].groupby("study", sort=False).indices.items():
        places = np.flatnonzero(hit.to_numpy())[rows]
        looks = np.unique(looked.loc[looked["study"] == study, "step"].to_numpy(dtype=float))
        known = np.isin(steps[places], looks)
        places = places[known]
        if len(looks) < 2:
            continue
        at = np.searchsorted(looks, steps[places])
        odd = at % 2 == 1
        beyond = looks[-1] * looks[-1] / looks[-2]
        grid = np.append(looks, np.ceil(beyond))
        steps[places] = grid[at + odd]
        misses[places] = np.where(at < 2, np.where(odd, looks[0], 0.0), grid[at - 2 + odd])
        cut = np.flatnonzero(dominated & (of_study == study))
        kept = grid[::2]
        following = np.searchsorted(kept, ran[cut], side="right")
        ran[cut] = np.where(
            following < len(kept), kept[np.minimum(following, len(kept) - 1)], ran[cut]
        )
    steps, misses = _trained_on(trials, looked, steps, misses)
    return trials.assign(steps_to_target=steps, last_miss=misses, steps_run=ran)


def _trained_on(
    trials: pd.DataFrame, looked: pd.DataFrame, steps: np.ndarray, misses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where a trial went on after its target, the first kept look that is better than it."""
    places = pd.Series(np.arange(len(trials)), index=trials["trial"])
    for metric, some in trials.groupby("target_metric", sort=False):
        if metric not in looked or some["trial"].duplicated().any():
            continue
        rows = looked.loc[looked["trial"].isin(some["trial"]), ["study", "trial", "step", metric]]
        look = rows.groupby("study")["step"].rank(method="dense").astype(int) - 1
        place = places.loc[rows["trial"]].to_numpy()
        later = rows["step"].to_numpy() >= steps[place]
        value = rows[metric].to_numpy(dtype=float)
        goal = trials["target_value"].to_numpy(dtype=float)[place]
        lower = trials["lower_is_better"].fillna(True).to_numpy(dtype=bool)[place]
        kept = later & (look.to_numpy() % 2 == 0)
        better = kept & np.where(lower, value < goal, value > goal)
        asked = pd.Series(rows["step"].to_numpy()[kept]).groupby(place[kept]).min()
        found = pd.Series(rows["step"].to_numpy()[better]).groupby(place[better]).min()
        missed = pd.Series(rows["step"].to_numpy()[kept & ~better], index=place[kept & ~better])
        for each in asked.index.intersection(found.index):
            if found[each] > asked[each]:
                before = missed.loc[[each]]
                steps[each] = found[each]
                misses[each] = before[before < found[each]].max()
    return steps, misses
