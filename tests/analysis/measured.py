"""A small search with measurements, in which each fate of a trial is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import results
from analysis.figure_data import FigureData, Query
from analysis.fit.knee import log_steps, theta
from results.store import Store
from tests.analysis import noisy_trajectories, seeded_losses
from tests.analysis.compared import compared
from tests.analysis.conftest import SPACE, looks
from tests.analysis.gallery import Row, as_it_is
from tests.analysis.loss_surfaces import finals
from tests.reported import study_row, trial_row

OTHER_DATA: Mapping[str, Callable[..., FigureData]] = {
    "optimal_batch": finals,
    "collapse": compared,
    "crossover": compared,
    "best_at_batch": seeded_losses.of_file,
    "noise": noisy_trajectories.recorded,
}
"""Figures that ``measured`` has no data for, and what makes theirs in a folder."""

SIZES = (8, 128, 4096)
TRIALS = 6
GOAL = 0.1
BUDGET = 1500
GRID = looks(1.25, 60)[looks(1.25, 60) <= BUDGET]


def measured(root: Path, change: Callable[[Row], Row] = as_it_is) -> FigureData:
    """Each row of a study, a trial or a measurement is as ``change`` makes it.

    Two optimizers at three batch sizes. Errors fall as 0.9 · (1 + step/h)^-2 with h from the
    trial's learning rate; those above 4 diverge, from step 20 on they are 1e30."""
    store = Store(root)
    rng = np.random.default_rng(3)
    for optimizer, params in (("sgd", theta(40.0, 60.0)), ("momentum", theta(30.0, 150.0))):
        for size in SIZES:
            best = np.exp(log_steps(np.log([size]), params)[0])
            study = study_row(optimizer, size)
            trials, points = [], []
            for index in range(TRIALS):
                rate = float(np.exp(rng.uniform(np.log(1e-3), np.log(10))))
                momentum = float(rng.uniform(0, 0.95)) if optimizer == "momentum" else None
                own = {"trial": f"{optimizer}-{size}-{index}", "study": study["study"]}
                error = 0.9 * (1 + GRID / (best * np.exp(abs(np.log(rate / 0.1)) * 0.4))) ** -2
                dead = rate > 4
                steps = GRID[GRID < 20] if dead else GRID
                error = np.where(dead & (steps > 10), 1e30, error[: len(steps)])
                hit = np.flatnonzero(error < GOAL)
                ran = len(steps) if dead or not len(hit) else hit[0] + 1
                reached = bool(len(hit)) and not dead
                last = int(steps[ran - 1])
                missed = int(steps[ran - 2]) if reached and ran > 1 else None
                points += [
                    {**own, "step": int(step), "metrics": {"validation_error": float(value)}}
                    for step, value in zip(steps[:ran], error[:ran], strict=True)
                ]
                trials.append(
                    {
                        **trial_row(study, index, rate, last if reached else None, missed),
                        "momentum": momentum,
                        "effective_learning_rate": rate / (1 - (momentum or 0.0)),
                        "target_value": GOAL,
                        **({"status": "INFEASIBLE", "stop_reason": "diverged"} if dead else {}),
                        "steps_run": last,
                        "budget_steps": BUDGET,
                    }
                )
            store.commit("e", measurements=[*map(change, points)], trials=[*map(change, trials)])
            store.add_studies(
                [change({**study, "experiment": "e", "search_space": SPACE, "dimensions": 1})]
            )
    return FigureData(Query(sources=[results.open(root)]))
