"""A small search with measurements, in which each fate of a trial is known."""

from __future__ import annotations

import json
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
            trials, points = [], []
            for index in range(TRIALS):
                rate = float(np.exp(rng.uniform(np.log(1e-3), np.log(10))))
                momentum = float(rng.uniform(0, 0.95)) if optimizer == "momentum" else None
                own = {"trial": f"{optimizer}-{size}-{index}", "study": f"{optimizer}-{size}"}
                error = 0.9 * (1 + GRID / (best * np.exp(abs(np.log(rate / 0.1)) * 0.4))) ** -2
                dead = rate > 4
                steps = GRID[GRID < 20] if dead else GRID
                error = np.where(dead & (steps > 10), 1e30, error[: len(steps)])
                hit = np.flatnonzero(error < GOAL)
                ran = len(steps) if dead or not len(hit) else hit[0] + 1
                reached = bool(len(hit)) and not dead
                points += [
                    {**own, "step": int(step), "metrics": {"validation_error": float(value)}}
                    for step, value in zip(steps[:ran], error[:ran], strict=True)
                ]
                trials.append(
                    {
                        **own,
                        "workload": "digits-softmax",
                        "dataset": "digits",
                        "optimizer": optimizer,
                        "schedule": "constant",
                        "batch_size": size,
                        "role": "search",
                        "index": index,
                        "seed": 0,
                        "learning_rate": rate,
                        "momentum": momentum,
                        "effective_learning_rate": rate / (1 - (momentum or 0.0)),
                        "metaparameters": json.dumps({"learning_rate": rate}),
                        "status": "INFEASIBLE" if dead else "COMPLETE",
                        "stop_reason": "diverged" if dead else "target" if reached else "budget",
                        "target_metric": "validation_error",
                        "target_value": GOAL,
                        "lower_is_better": True,
                        "steps_to_target": float(steps[ran - 1]) if reached else None,
                        "last_miss": float(steps[ran - 2]) if reached and ran > 1 else None,
                        "steps_run": int(steps[ran - 1]),
                        "budget_steps": BUDGET,
                    }
                )
            study = {
                name: trials[0][name] for name in ("study", "workload", "dataset", "optimizer")
            }
            store.commit("e", measurements=[*map(change, points)], trials=[*map(change, trials)])
            store.add_studies(
                [change({**study, "experiment": "e", "schedule": "constant", "batch_size": size,
                         "search_space": SPACE, "dimensions": 1})]
            )  # fmt: skip
    return FigureData(Query(sources=[results.open(root)]))
