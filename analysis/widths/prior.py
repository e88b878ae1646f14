"""What packaged curves say of a curve before any of its trials is trained.

Each curve of ``own`` and of ``published`` gives a knee: its bend, and where its batch size lies
within the tested ones, as a share of their range. The curves of ``own`` that are bests of searches
give a scatter too. A simulated curve takes the one from a curve and the other from a curve; of the
workloads each is as likely as any other, however many curves it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

import results
from analysis.fit.convex import Points
from analysis.fit.knee import BATCH, Knee
from analysis.widths.expected import FEWEST, Known
from analysis.widths.scatter import BEST, GRID, Array, Gaps

PACKAGED = ("own", "published")
_CURVE = [
    *("experiment", "workload", "dataset", "model", "optimizer", "schedule", "technique"),
    *("fields", "target_metric", "target_value", "replicate"),
]
_READ = ["study", "role", "status", "keep", "batch_size", "steps_to_target", "last_miss"]
_LEAST_SIZES, _DRAWN, _SEED = 5, 200, 2032


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """A packaged curve."""

    workload: str
    knee: Array
    """Its parameters, the batch size as a share of the tested range; (4,)."""
    gaps: Gaps | None


def known(batch_sizes: Sequence[int], dimensions: int) -> Known:
    """What packaged curves say of a curve of these batch sizes."""
    every = [curve for name in PACKAGED for curve in _curves(name)]
    rng = np.random.default_rng(_SEED)
    knees = np.array([every[place].knee for place in _draw(rng, every)])
    first, last = np.log([min(batch_sizes), max(batch_sizes)])
    knees[:, BATCH] = first + knees[:, BATCH] * (last - first)
    scattered = [curve for curve in every if curve.gaps is not None]
    pairs = [
        GRID[rng.choice(len(GRID), p=gaps.weights)]
        for place in _draw(rng, scattered)
        if (gaps := scattered[place].gaps) is not None
    ]
    return Known(knees=knees, scatters=np.array(pairs), dimensions=dimensions)


def _draw(rng: np.random.Generator, every: Sequence[_Curve]) -> list[int]:
    """Places of curves, each workload as often as any other."""
    workloads = [curve.workload for curve in every]
    weights = np.array([1 / workloads.count(name) for name in workloads])
    return [*rng.choice(len(every), size=_DRAWN, p=weights / weights.sum())]


def _curves(name: str) -> Iterator[_Curve]:
    source = results.open(name)
    trials = source.trials
    trials = trials.loc[trials["stop_reason"].ne("error"), [*_CURVE, *_READ]]
    steps, miss = (trials[name].astype(float) for name in ("steps_to_target", "last_miss"))
    trials["middle"] = ((miss + 1 + steps) / 2).fillna(steps)
    tuned = source.studies.drop_duplicates("study", keep="last").set_index("study")["dimensions"]
    by_curve = trials.groupby(_CURVE, sort=False, dropna=False)
    for key, rows in by_curve:
        runs = bool(rows["role"].eq("repeat").all())
        searches = rows if runs else rows[rows["role"].ne("repeat")]
        middles = searches.dropna(subset="middle").groupby("batch_size")["middle"]
        by_size = [np.sort(each.to_numpy()) for _, each in middles]
        if len(by_size) < _LEAST_SIZES:
            continue
        x = np.log(np.array(list(middles.groups), dtype=float))
        logs = [np.log(each) for each in by_size]
        y = np.array([each.mean() if runs else each[0] for each in logs])
        knee = Knee.of(Points(x=x, y=y, variance=np.zeros(len(x)))).params.copy()
        knee[BATCH] = (knee[BATCH] - x[0]) / (x[-1] - x[0])
        gaps = None if runs else _gaps(searches, by_size, tuned)
        yield _Curve(workload=str(key[1]), knee=knee, gaps=gaps)


def _gaps(rows: pd.DataFrame, middles: Sequence[Array], tuned: pd.Series) -> Gaps | None:
    """The scatter of the bests of searches that are as long as those of a pilot."""
    feasible = rows[rows["status"].ne("INFEASIBLE")].groupby("batch_size").size()
    dimensions = tuned.reindex(rows["study"].unique()).dropna()
    if dimensions.empty or rows["keep"].lt(BEST).any() or feasible.median() < FEWEST:
        return None
    trials = 2 ** round(np.log2(feasible.median()))  # few lengths: each is simulated once
    return Gaps.of([[*each] for each in middles], int(trials), int(dimensions.median()))
