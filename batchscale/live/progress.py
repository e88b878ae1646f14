"""How a sweep goes, as the page's panel shows it: plain values for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from results.counts import count
from results.targets.target import Target

if TYPE_CHECKING:
    from experiments.records.status import Status

_SILENT = 30.0
"""Seconds without a word, of the ten between two, after which a pack is called silent."""
_PACK = ("experiment", "optimizer", "batch_size", "trials", "step", "metric", "best", "machine")


def nothing(source: str, sentence: str) -> dict[str, Any]:
    """What is shown of a source of which nothing is known yet."""
    return {
        "source": source,
        "time": None,
        "sentence": sentence,
        "error": None,
        "computing": False,
        "experiments": [],
        "packs": [],
        "left": None,
        "seconds_left": None,
        "complete": False,
    }


def progress(
    source: str, found: Status, studies: pd.DataFrame, renewed: Mapping[str, float]
) -> dict[str, Any]:
    """What is shown of a sweep: as good as nothing in it changes while dataset and claims do not.

    ``studies`` name their targets; ``renewed`` says of each pack when its claim was last written,
    in seconds since the epoch, which is ``last_word`` of it.
    """
    planned = not found.studies.empty
    packs = found.running
    metrics = _metrics(studies)
    shown = packs.assign(metric=packs["study"].map(metrics), silent=packs["silent"].gt(_SILENT))
    rows = _records(shown.loc[shown["study"].notna(), [*_PACK, "silent", "pack"]])
    for row in rows:
        row["last_word"] = int(renewed.get(row.pop("pack"), 0)) or None
    return {
        **nothing(source, _sentence(found, len(rows)) if planned else "No sweep was planned here."),
        "experiments": _records(found.algorithms) if planned else [],
        "packs": rows,
        "left": found.left if planned else None,
        "seconds_left": found.seconds if found.left else None,
        "complete": planned and not found.left and not rows,
    }


def _sentence(found: Status, packs: int) -> str:
    wanted, infeasible, failed = (
        int(found.studies[name].sum()) for name in ("wanted", "infeasible", "failed")
    )
    runs = f"{count(packs, 'pack', 'train')} now" if packs else "nothing runs now"
    trials = count(wanted, "trial")
    sentences = [
        f"{wanted - found.left:,} of {trials}, {runs}."
        if found.left or packs
        else f"The search has all of its {trials}.",
        f"{infeasible:,} infeasible so far." if infeasible else "",
        f"{failed:,} failed: the same sweep tries them once more." if failed else "",
    ]
    return " ".join(filter(None, sentences))


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
