"""A results folder whose report is known: exact knees, two goals that can be asked, one not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from results.store import Store

SIZES = tuple(2**k for k in range(9))
TARGET, EASIER, HARDER = (f"validation_error < {value}" for value in ("0.04", "0.08", "0.02"))
KNEES = {"sgd": (60.0, 20.0), "momentum": (50.0, 60.0)}
"""S_min and B_crit of each optimizer."""
YAML = "name: e\nworkload: digits-mlp\n"


def steps_of(optimizer: str, size: int, place: int = 0) -> int:
    """Steps to ``TARGET`` of the trial at ``place``; the first is the best."""
    least, critical = KNEES[optimizer]
    return round(least * (1 + critical / size) * (1 + 0.3 * place))


def write(
    root: Path,
    *,
    workload: str = "digits-mlp",
    optimizers: tuple[str, ...] = ("sgd", "momentum"),
    trials: int = 8,
    yaml: str = YAML,
    notes: tuple[str, ...] = (),
    measured: bool = True,
) -> Path:
    """Studies, trials and measurements of one experiment under ``root``.

    The error of a trial falls as 0.04 √(S / step), S its steps to ``TARGET``, where it stops. The
    first of each optimizer in ``optimizers`` is named as in ``KNEES``, whatever follows a space.
    """
    store = Store(root)
    for optimizer in optimizers:
        for size in SIZES:
            study = f"{optimizer}-{size}"
            group = {"workload": workload, "dataset": "digits", "optimizer": optimizer,
                     "batch_size": size, "study": study}  # fmt: skip
            store.add_studies([{"experiment": "e", **group, **_plan(yaml, notes)}])
            rows, looks = [], []
            for i in range(trials):
                row, seen = _trial(group, optimizer.split()[0], size, i)
                rows.append(row)
                looks += seen if measured else []
            store.commit("e", measurements=looks, trials=rows)
    return root


def _plan(yaml: str, notes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "targets": [EASIER, TARGET, HARDER],
        "search_space": {"learning_rate": {"log": [0.01, 1.0]}},
        "dimensions": 1,
        "experiment_yaml": yaml,
        "notes": list(notes),
    }


def study_row(optimizer: str, size: int) -> dict[str, Any]:
    """The study of that optimizer and batch size."""
    return {
        "study": f"{optimizer}-{size}", "workload": "digits-softmax", "dataset": "digits",
        "optimizer": optimizer, "schedule": "constant", "batch_size": size,
    }  # fmt: skip


def trial_row(
    group: dict[str, Any], place: int, rate: float, steps: float | None, missed: float | None
) -> dict[str, Any]:
    """The trial at ``place`` of a search, at that learning rate; ``steps`` None: its budget ended
    before ``TARGET`` was reached. ``missed``: its last look before."""
    return {
        **group,
        "trial": f"{group['study']}-{place}",
        "index": place,
        "seed": place,
        "role": "search",
        "status": "COMPLETE",
        "stop_reason": "budget" if steps is None else "target",
        "stop_at_target": True,
        "learning_rate": rate,
        "effective_learning_rate": rate,
        "metaparameters": {"learning_rate": rate},
        "target_metric": "validation_error",
        "target_value": 0.04,
        "lower_is_better": True,
        "steps_to_target": steps,
        "last_miss": missed,
        "steps_run": steps,
    }


def _trial(
    group: dict[str, Any], knee: str, size: int, place: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    steps = steps_of(knee, size, place)
    looks = sorted({*np.unique(np.geomspace(1, steps, 24).round().astype(int)).tolist(), steps})
    row = {
        **trial_row(group, place, 0.05 * 1.5**place, steps, looks[-2]),
        "engine": "stacked",
        "device": "cpu",
        "versions": {"torch": "2.11.0", "batchscale": "0.1.0"},
    }
    # A little better than the root says, so that the last look is strictly better than 0.04.
    seen = [
        {
            "trial": row["trial"],
            "step": step,
            "metrics": {"validation_error": 0.03999 * (steps / step) ** 0.5},
        }
        for step in looks
    ]
    return row, seen
