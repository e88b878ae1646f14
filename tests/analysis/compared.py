"""Searches with two optimizers of which either takes fewer steps somewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import results
from analysis.figure_data import FigureData, Query
from analysis.fit.knee import log_steps, theta
from results.store import Store
from tests.analysis.gallery import Row, as_it_is
from tests.reported import study_row, trial_row

KNEES = {"sgd": theta(900.0, 100.0, 1.2), "momentum": theta(300.0, 600.0, 1.2)}
SIZES = tuple(2**i for i in range(3, 13))
NOISE = 0.04
"""Standard deviation of log steps."""


def compared(root: Path, change: Callable[[Row], Row] = as_it_is) -> FigureData:
    """Each row of a study or a trial is as ``change`` makes it; one trial a batch size."""
    store = Store(root)
    rng = np.random.default_rng(6)
    for optimizer, knee in KNEES.items():
        for size in SIZES:
            logs = log_steps(np.log([size]), knee)[0] + rng.normal(0.0, NOISE)
            study = {**study_row(optimizer, size), "evaluation_ratio": 1.05}
            steps = float(np.exp(logs))
            trial = trial_row(study, 0, 0.1, steps, steps - 1)
            trial |= {"target_value": 0.1, "steps_run": None}  # which are whole
            store.commit("e", measurements=[], trials=[change(trial)])
            store.add_studies([change({**study, "experiment": "e"})])
    return FigureData(Query(sources=[results.open(root)]))
