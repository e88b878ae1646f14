"""A small results dataset that is known in every number: no training, no randomness.

Trial ``t`` (0, 1, …) of a study reaches ``validation_error < 0.1`` at the look ``4 + t``; the looks
stand at steps 2, 4, 6, …; the last trial of a study never gets there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.run_state.claims import Claim, Claims
from results.storage.location import Location
from results.store import Store

OPTIMIZERS = ("sgd", "adam")
WIDTHS = {"digits-mlp": 64, "mnist-fc": None}
BATCH_SIZES = (8, 16, 32)
TRIALS = 4
LOOKS = 10
TARGET = "validation_error < 0.1"


def error_at(trial: int, look: int) -> float:
    """The error of trial ``trial`` at its look ``look`` (from 1): falls by equal steps."""
    if trial == TRIALS - 1:
        return 0.9
    return max(0.0, round(0.05 + 0.1 * (4 + trial - look), 6))


def study_id(workload: str, optimizer: str, batch_size: int) -> str:
    return f"{workload}-{optimizer}-{batch_size}"


def study_row(workload: str, optimizer: str, batch_size: int, **more: Any) -> dict[str, Any]:
    width = WIDTHS[workload]
    return {
        "experiment": "synthetic",
        "study": study_id(workload, optimizer, batch_size),
        "workload": workload,
        "dataset": "digits",
        "optimizer": optimizer,
        "schedule": "constant",
        "batch_size": batch_size,
        "fields": {"width": width} if width else {"depth": 2},
        "trials_wanted": TRIALS,
        **more,
    }


def trial_row(workload: str, optimizer: str, batch_size: int, index: int) -> dict[str, Any]:
    last = index == TRIALS - 1
    run = 2 * LOOKS if last else 2 * (4 + index)
    group = study_row(workload, optimizer, batch_size)
    return {
        **group,
        "trial": f"{group['study']}-{index}",
        "index": index,
        "seed": 2**62 + index,
        "role": "search",
        "learning_rate": 0.1 * (index + 1),
        "momentum": 0.9 if optimizer == "adam" else None,
        "metaparameters": {"learning_rate": 0.1 * (index + 1)},
        "status": "COMPLETE",
        "stop_reason": "budget" if last else "target",
        "target_metric": "validation_error",
        "target_value": 0.1,
        "lower_is_better": True,
        "stop_at_target": True,
        "steps_to_target": None if last else run,
        "last_miss": None if last else run - 2,
        "steps_run": run,
        "examples_run": run * batch_size,
        "versions": {"torch": "2.11.0"},
    }


def measurement_rows(trial: dict[str, Any]) -> list[dict[str, Any]]:
    looks = range(1, trial["steps_run"] // 2 + 1)
    return [
        {
            "trial": trial["trial"],
            "step": 2 * look,
            "examples": 2 * look * trial["batch_size"],
            "train_seconds": 0.1 * look,
            "metrics": {
                "validation_error": error_at(trial["index"], look),
                # Only one of the optimizers reports these, as a workload of one's own may.
                **(
                    {"test_error": 0.5, "validation_top5": 0.5 + 0.04 * look}
                    if trial["optimizer"] == "adam"
                    else {}
                ),
            },
        }
        for look in looks
    ]


def commit(store: Store, trials: list[dict[str, Any]]) -> str:
    points = [row for trial in trials for row in measurement_rows(trial)]
    run = store.commit("synthetic", measurements=points, trials=trials)
    assert run is not None
    return run


def write(root: Path) -> Store:
    """The whole dataset, one commit a study: 12 studies, 48 trials."""
    store = Store(root)
    combinations = [(w, o, b) for w in WIDTHS for o in OPTIMIZERS for b in BATCH_SIZES]
    store.add_studies([study_row(*combination) for combination in combinations])
    for combination in combinations:
        commit(store, [trial_row(*combination, index) for index in range(TRIALS)])
    return store


def claimed(
    root: Path | Location, pack: str = "p", trials: Sequence[str] = ("a", "b"), **given: Any
) -> Claim:
    """The claim of a pack that nobody holds."""
    claim = Claims(root).take(pack, trials, **given)
    assert claim is not None
    return claim
