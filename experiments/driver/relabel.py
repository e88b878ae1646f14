"""Trials that an earlier target recorded, and that the present one finds done, are written again.

Results are grouped by target: without this, a study whose target was moved would be two halves.
Nothing is trained. A new row supersedes the old one; its measurements come along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from experiments.driver.known import some
from results.reached import steps_to_target
from results.store import Store
from results.target import Target

_OF_THE_COMMIT = ("run", "time")


def relabel(store: Store, experiment: str, target: Target, trials: Iterable[str]) -> int:
    """Write those of an experiment's ``trials`` that have another target with ``target``.

    Args:
        trials: ids of trials that need no training under ``target``.

    Returns:
        How many were written.
    """
    found = some(store, trials)
    rows = [
        row
        for row in found.trial_rows.to_pylist()
        if row["experiment"] == experiment
        and (row["target_metric"], row["target_value"]) != (target.metric, target.value)
    ]
    if not rows:
        return 0
    looks = some(store, (row["trial"] for row in rows)).read_measurements()
    steps = {str(t): found for t, found in steps_to_target(looks, target).iterrows()}
    points: dict[str, list[Mapping[str, Any]]] = {}
    for point in looks.to_dict("records"):
        known = {str(k): v for k, v in point.items() if k != "run" and not _missing(v)}
        points.setdefault(str(point["trial"]), []).append(known)
    store.commit(
        experiment,
        measurements=[point for row in rows for point in points.get(row["trial"], ())],
        trials=[_row(row, target, steps.get(row["trial"])) for row in rows],
    )
    return len(rows)


def _row(row: Mapping[str, Any], target: Target, found: pd.Series | None) -> dict[str, Any]:
    """The row with another target, and the steps to it (none: it keeps how it ended)."""
    hit = found is not None and not _missing(found["steps_to_target"])
    return {
        **{name: value for name, value in row.items() if name not in _OF_THE_COMMIT},
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
