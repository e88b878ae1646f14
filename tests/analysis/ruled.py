"""A sweep with two rules beside free tuning, in which every number is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import results
from analysis.figure_data import FigureData, Query
from results.store import Store
from tests.analysis.gallery import Row
from tests.reported import study_row, trial_row

FREE = {
    64: [100, 110, 120, 130, 200, 300],
    128: [50, 55, 60, 65, 80, 90],
    256: [25, 30, 32, 36, 40, 50],
}
"""Steps to target of each row of the free studies."""
RULED: dict[int, list[int | None]] = {
    64: [120, 100, 130, 110, 400, 500],  # the best are rows 1, 3, 0 and 2
    128: [70, 75, 65, 60, 40, 45],  # rows 4 and 5 are the best here, which nothing chooses
    256: [None, 60, 80, 50, 30, 30],  # row 0 has run to its budget
}
"""Those of the studies by the rule; none where a row did not reach the target."""
TUNED = {64: [100, 105, 110, 120, 130, 140], 128: [45, 50, 60, 62, 70, 80], 256: [30] * 6}
BUDGET = 600
TRANSFER, HALF_LIFE = "learning_rate sqrt, from 64", "beta2 half_life, from 64"


def ruled(root: Path, change: Callable[[Row], Row]) -> FigureData:
    """Each row of a study or a trial is as ``change`` makes it."""
    store = Store(root)
    for rule, steps in ((None, FREE), (TRANSFER, RULED), (HALF_LIFE, TUNED)):
        technique = {"precision": "float32", **({"rule": rule} if rule else {})}
        for size, of_size in steps.items():
            study = {**study_row("adam", size), "study": f"{rule}-{size}"}
            study |= {"technique": json.dumps(technique), "evaluation_ratio": 1.05}
            trials = [
                {
                    **trial_row(study, index, 0.1, hit, hit - 1 if hit else None),
                    "target_value": 0.1,
                    "steps_run": hit or BUDGET,
                    "budget_steps": BUDGET,
                }
                for index, hit in enumerate(of_size)
            ]
            store.commit("e", measurements=[], trials=[*map(change, trials)])
            targets = {"experiment": "e", "targets": json.dumps(["validation_error < 0.1"])}
            store.add_studies([change({**study, **targets})])
    return FigureData(Query(sources=[results.open(root)]))
