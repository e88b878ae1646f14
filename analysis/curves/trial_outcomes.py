"""What became of each trial of a search: for the shares and the scatter of trials.

Under dominated stopping a trial that was cut off might have reached the target later: it is a
class of its own, and how many there are depends on the order of training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curves.runs import Rows, Runs, number

CLASSES = ("reached", "not reached", "dominated", "infeasible")


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """A trial that ran to an end. ``became`` is one of ``CLASSES``."""

    trial: str | None
    became: str
    steps: float | None
    """Steps to target."""
    learning_rate: float | None
    momentum: float | None


def trial_outcomes(runs: Runs, rows: Rows) -> tuple[TrialOutcome, ...]:
    """The trials ``rows`` that ended, in their order."""
    return tuple(
        TrialOutcome(
            trial=runs.rows["trial"][row],
            became=_became(runs, row),
            steps=number(runs.steps[row]),
            learning_rate=number(runs.rows["learning_rate"][row]),
            momentum=number(runs.rows["momentum"][row]),
        )
        for row in rows
        if runs.ended[row]
    )


def shares(trials: Sequence[TrialOutcome]) -> dict[str, float]:
    """The share of each class among the trials that ran; empty where none did."""
    counts = Counter(one.became for one in trials)
    return {name: counts[name] / len(trials) for name in CLASSES} if trials else {}


def _became(runs: Runs, row: np.intp) -> str:
    if np.isfinite(runs.steps[row]):
        return "reached"
    if runs.diverged[row]:
        return "infeasible"
    return "dominated" if runs.dominated[row] else "not reached"
