"""Made trials that recorded their noise scale, which is known along their trajectory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from analysis.figure_data import FigureData, Query
from analysis.fit.knee import log_steps, theta
from results.store import Store
from tests.analysis.conftest import looks
from tests.analysis.gallery import Row, as_it_is
from tests.reported import study_row, trial_row

SIZES = tuple(2**power for power in range(2, 13, 2))
GOAL = 0.1
CURVES = {"sgd": (theta(400.0, 60.0), 40.0), "momentum": (theta(300.0, 150.0), 90.0)}
"""Steps to target, and the noise scale at the beginning."""
SLOWER = (1.0, 1.1, 1.2, 1.6)
"""Of four trials at each batch size."""


def noise_scale(first: float, share: float) -> float:
    """Up to a share of the trajectory: tr(Σ) is level, and |G|² falls linearly to a half."""
    return first / (1 - share / 2)


def recorded(
    root: Path, change: Callable[[Row], Row] = as_it_is, *, deviation: float = 0.0
) -> FigureData:
    """Rows as ``change`` makes them. All steps are measured; the mean |G|² at a share s of
    its trajectory is 1 - s/2, and errors fall as 1 / (1 + 9 (step / its steps))."""
    store, rng = Store(root), np.random.default_rng(7)
    for optimizer, (params, first) in CURVES.items():
        for size in SIZES:
            least = np.exp(log_steps(np.log([size]), params)[0])
            study = study_row(optimizer, size)
            trials, points = [], []
            for index, slower in enumerate(SLOWER):
                own = {"trial": f"{optimizer}-{size}-{index}", "study": study["study"]}
                grid = looks(1.05, 400)
                steps = int(grid[np.searchsorted(grid, least * slower)])
                at = grid[grid <= steps].astype(int)
                shares = (np.arange(steps) + 0.5) / steps
                gradient = 1 - shares / 2 + deviation * rng.standard_normal(steps)
                sums = np.cumsum(gradient)[at - 1], first * at
                points += [
                    {
                        **own,
                        "step": int(step),
                        "metrics": {
                            "validation_error": 1 / (1 + 9.0001 * step / steps),
                            "train_noise_steps": float(step),
                            "train_noise_gradient": float(squared),
                            "train_noise_variance": float(trace),
                        },
                    }
                    for step, squared, trace in zip(at, *sums, strict=True)
                ]
                trials.append(
                    {
                        **trial_row(study, index, 0.1 * (1 + index), steps, int(at[-2])),
                        "example_unit": "image",
                        "target_value": GOAL,
                        "examples_run": steps * size,
                        "trials_wanted": len(SLOWER),
                        "budget_steps": int(grid[-1]),
                        "search": "random",
                    }
                )
            store.add_studies([change({**study, "experiment": "e"})])
            store.commit("e", measurements=[*map(change, points)], trials=[*map(change, trials)])
    return FigureData(Query(sources=(root,)))
