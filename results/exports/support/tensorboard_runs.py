"""A trial as a run of TensorBoard: its name and its hyperparameters."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from results.schema import SPLITS

COLUMNS = (
    *("experiment", "study", "trial", "index", "role", "workload", "optimizer", "schedule"),
    *("batch_size", "fields", "metaparameters", "effective_learning_rate", "seed", "status"),
    *("stop_reason", "steps_to_target", "steps_run", "time"),
)
"""The columns of a trial's row that are used here."""

_ALGORITHM = ("experiment", "workload", "optimizer", "schedule", "batch_size", "role")
_HEX = re.compile(r"[0-9a-f]{16,}")
_ODD = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST = 80


def run_name(row: Mapping[str, Any]) -> str:
    """``digits/momentum-b00064/003-1f0c2a9e``: the first eight places of the trial's id make it
    unique, and no other trial can change it. Leading zeros make it sort."""
    experiment = _part(row["experiment"] or "trials")
    study = f"b{row['batch_size']:05d}"
    if row["optimizer"]:
        study = f"{_part(row['optimizer'])}-{study}"
    name = str(row["trial"])
    short = name if _HEX.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()
    index = "" if row["index"] is None else f"{row['index']:03d}-"
    return f"{experiment}/{study}/{index}{short[:8]}"


def hyperparameters(row: Mapping[str, Any]) -> dict[str, str | bool | float]:
    """What distinguishes a trial: training algorithm, batch size, workload fields (by
    ``workload.<field>`` where a metaparameter has that name), metaparameters."""
    values: dict[str, Any] = {name: row[name] for name in _ALGORITHM}
    tuned = _mapping(row["metaparameters"])
    for name, value in _mapping(row["fields"]).items():
        values[f"workload.{name}" if name in tuned or name in values else name] = value
    for name, value in tuned.items():
        values[f"tuned.{name}" if name in _ALGORITHM else name] = value
    values.setdefault("effective_learning_rate", row["effective_learning_rate"])
    return {name: _plain(value) for name, value in values.items() if value is not None}


def tag(metric: str) -> str:
    """``validation_error`` is ``validation/error``; a name without a split stays as it is."""
    split, _, rest = metric.partition("_")
    return f"{split}/{rest}" if split in SPLITS and rest else metric


def committed(row: Mapping[str, Any]) -> float:
    """When its row was written, seconds since the epoch; 0 where that is not recorded."""
    time = row["time"]
    return time.timestamp() if isinstance(time, datetime) else 0.0


def failed(row: Mapping[str, Any]) -> bool:
    """Whether it diverged or raised."""
    return row["status"] == "INFEASIBLE" or row["stop_reason"] == "error"


def _part(text: Any) -> str:
    """``text`` as a folder's name on any system."""
    return _ODD.sub("-", str(text)).strip(".-")[:_LONGEST] or "unnamed"


def _mapping(text: str | None) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> str | bool | float:
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value)
