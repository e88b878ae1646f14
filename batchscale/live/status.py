"""The progress of a sweep for the page's panel, as plain values for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from experiments.records.status import how_far
from results.counts import count
from results.failures import repeat_command
from results.targets.target import Target

if TYPE_CHECKING:
    from experiments.records.status import Status

_SILENT = 30.0
"""Seconds since its last heartbeat, which comes every ten, after which a pack is called silent."""
_MOST_FAILED = 5
"""Failed trials that are listed."""
_CELL = ("experiment", "optimizer", "batch_size", "wanted", "done", "reached", "failed", "running")
_PACK = ("experiment", "optimizer", "batch_size", "trials", "step", "metric", "best", "machine")


def nothing(source: str, sentence: str) -> dict[str, Any]:
    """The status of a source that was not read yet, or that is empty."""
    return {
        "source": source,
        "time": None,
        "sentence": sentence,
        "error": None,
        "computing": False,
        "experiments": [],
        "cells": [],
        "packs": [],
        "failed_trials": [],
        "begun": None,
        "left": None,
        "seconds_left": None,
        "steps_per_second": None,
        "complete": False,
    }


def progress(
    source: str, state: Status, studies: pd.DataFrame, renewed: Mapping[str, float]
) -> dict[str, Any]:
    """The status of a sweep. It hardly changes while dataset and claims do not.

    Args:
        studies: they name their targets.
        renewed: when the claim of each pack was last written, in seconds since the epoch: its
            ``last_word``.
    """
    planned = not state.studies.empty
    packs = state.running
    columns = packs.assign(
        metric=packs["study"].map(_metrics(studies)), silent=packs["silent"].gt(_SILENT)
    )
    rows = _records(columns.loc[columns["study"].notna(), [*_PACK, "silent", "pack"]])
    for row in rows:
        row["last_word"] = int(renewed.get(row.pop("pack"), 0)) or None
    return {
        **nothing(source, _sentence(state, len(rows)) if planned else "No sweep was planned here."),
        "experiments": _records(state.added_up()) if planned else [],
        "cells": _records(state.added_up("batch_size")[[*_CELL, "left"]]) if planned else [],
        "packs": rows,
        "failed_trials": [
            {**each, "command": repeat_command(each["trial"], source)}
            for each in _records(state.failed_trials[:_MOST_FAILED])
        ],
        "begun": studies["time"].min().isoformat(timespec="seconds") if planned else None,
        "left": state.left if planned else None,
        "seconds_left": state.seconds if state.left else None,
        "complete": planned and not state.left and not rows,
    }


def _sentence(state: Status, packs: int) -> str:
    wanted, infeasible = (int(state.studies[name].sum()) for name in ("wanted", "infeasible"))
    text = f"{wanted - state.left:,} of {count(wanted, 'trial')}: "
    text += how_far(state.left, state.failed)
    if state.left or packs:
        text += f"; {count(packs, 'pack', 'train')} now" if packs else "; nothing runs now"
    further = [f"{infeasible:,} infeasible so far"] if infeasible else []
    return " ".join(f"{each}." for each in (text, *further, *state.failures))


def _metrics(studies: pd.DataFrame) -> dict[str, str]:
    """The metric of each study's last target."""
    named = studies.dropna(subset=["targets"])
    return {
        study: Target.parse(json.loads(texts)[-1]).metric
        for study, texts in zip(named["study"], named["targets"], strict=True)
        if json.loads(texts)
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values, None where there is none."""
    return [
        {str(name): None if pd.isna(value) else _whole(value) for name, value in row.items()}
        for row in frame.astype(object).to_dict("records")
    ]


def _whole(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value
