"""Trials that an earlier target recorded, and that the present one finds done, are written again.

Results are grouped by target: without this, a study whose target was moved would be two halves.
Nothing is trained: the row is amended, and its measurements stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from experiments.records.recorded import some
from results.store import Store
from results.targets.retarget import steps_to_target
from results.targets.target import Target


def relabel(store: Store, experiment: str, target: Target, trials: Iterable[str]) -> int:
    """Write those of an experiment's ``trials`` that have another target with ``target``.

    Args:
        trials: ids of trials that need no training under ``target``.

    Returns:
        How many were written.
    """
    rows = [
        row
        for row in some(store, trials).trial_rows.to_pylist()
        if row["experiment"] == experiment
        and (row["target_metric"], row["target_value"]) != (target.metric, target.value)
    ]
    if not rows:
        return 0
    measured = some(store, (row["trial"] for row in rows)).read_measurements()
    steps = {str(trial): row for trial, row in steps_to_target(measured, target).iterrows()}
    store.amend([_row(row, target, steps.get(row["trial"])) for row in rows])
    return len(rows)


def _row(row: Mapping[str, Any], target: Target, found: pd.Series | None) -> dict[str, Any]:
    """The row with another target, and the steps to it (none: it keeps how it ended)."""
    hit = found is not None and not _missing(found["steps_to_target"])
    return {
        **row,
        "target_metric": target.metric,
        "target_value": target.value,
        "lower_is_better": target.lower_is_better,
        "steps_to_target": found["steps_to_target"] if found is not None and hit else None,
        "last_miss": found["last_miss"] if found is not None and hit else None,
        "refined_steps": None,  # they were of the other target's bracket
        "refined_last_miss": None,
        **({"status": "COMPLETE", "stop_reason": "target"} if hit else {}),
        **({"stop_reason": "budget"} if not hit and row["stop_reason"] == "target" else {}),
    }


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
