"""The trial behind each point: how its metric fell, and the command that repeats it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.figure_data import FigureData
from analysis.report.panels import View
from analysis.report.series import compact
from results.failures import repeat_command

MOST = 1_000
"""Best trials whose training curves a page holds; of more it holds none."""
_EVALUATIONS = 40
"""Evaluations of one, at most."""


def best_trials(data: FigureData, views: Iterable[View]) -> dict[str, dict[str, Any]]:
    """By trial: ``metric``, ``steps`` and ``values`` where it was measured, and ``command``, which
    trains it again, where it has a seed."""
    metrics: dict[str, list[str]] = defaultdict(list)
    for view in views:
        names = [point.trial for curve in view.curves for point in curve.points if point.trial]
        metrics["" if view.target is None else view.target.metric] += names
    made: dict[str, dict[str, Any]] = {
        name: {"command": repeat_command(name, root)}
        for name, root in _folders(data, [*chain(*metrics.values())]).items()
    }
    for metric, names in metrics.items():
        ids = [*dict.fromkeys(names)]
        if not metric or len(ids) > MOST:
            continue
        measured = data.evaluations.select(
            "SELECT trial, step, value FROM evaluations WHERE value IS NOT NULL ORDER BY step",
            {"trial": ids},
            metric,
        )
        for trial, evaluations in measured.groupby("trial"):
            places = np.linspace(0, len(evaluations) - 1, min(len(evaluations), _EVALUATIONS))
            thinned = evaluations.iloc[np.unique(places.round().astype(int))]
            made.setdefault(str(trial), {}).update(
                metric=metric,
                steps=thinned["step"].tolist(),
                values=compact(thinned["value"].tolist()),
            )
    return made


def _folders(data: FigureData, names: list[str]) -> dict[str, str]:
    """Where each of these trials, if it has a seed, was recorded."""
    wanted = pa.array(names, pa.string())
    folders: dict[str, str] = {}
    for source in data.sources:
        rows = source.trial_rows.select(["trial", "seed"])
        rows = rows.filter(pc.and_(pc.is_in(rows["trial"], wanted), pc.is_valid(rows["seed"])))
        folders |= dict.fromkeys(rows["trial"].to_pylist(), source.root)
    return folders
