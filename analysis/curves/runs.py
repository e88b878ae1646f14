"""Rows of trials as plain columns, and which of their numbers can be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.curves.order import BAR, last_exact

Rows = NDArray[np.intp]
"""Places in ``Runs``."""


@dataclass(frozen=True)
class Runs:
    """Rows of trials as plain columns: a curve is made of hundreds of small groups of them."""

    rows: Mapping[str, np.ndarray]
    """``study``, ``trial``, ``metaparameters``, ``batch_size`` …, as objects, (n,)."""
    steps: np.ndarray
    """Steps to target, NaN where it was not reached; likewise the next ones; (n,)."""
    last_miss: np.ndarray
    refined: np.ndarray
    """Steps to target on the finer grid, and their last miss: another estimand."""
    refined_last_miss: np.ndarray
    steps_run: np.ndarray
    index: np.ndarray
    enlargement: np.ndarray
    """Times the search space had been enlarged when the row was drawn."""
    keep: np.ndarray
    diverged: np.ndarray
    dominated: np.ndarray
    ended: np.ndarray
    """COMPLETE, INFEASIBLE or dominated: errors and interruptions say nothing."""

    @classmethod
    def of(cls, trials: pd.DataFrame) -> Runs:
        """The columns of ``trials``, in their order."""

        def numbers(name: str) -> np.ndarray:
            return pd.to_numeric(trials[name]).to_numpy(dtype=float, na_value=np.nan)

        status, reason = (trials[name].to_numpy(object) for name in ("status", "stop_reason"))
        diverged = status == "INFEASIBLE"
        dominated = (status == "INCOMPLETE") & (reason == "dominated")
        return cls(
            rows={name: trials[name].to_numpy(object) for name in trials.columns},
            steps=numbers("steps_to_target"),
            last_miss=numbers("last_miss"),
            refined=numbers("refined_steps"),
            refined_last_miss=numbers("refined_last_miss"),
            steps_run=numbers("steps_run"),
            index=numbers("index"),
            enlargement=np.nan_to_num(numbers("enlargement")),
            keep=numbers("keep"),
            diverged=diverged,
            dominated=dominated,
            ended=diverged | dominated | (status == "COMPLETE"),
        )

    def kept(self, rows: Rows) -> int | None:
        """The least ``keep`` of the rows' studies; None where stopping was off in all."""
        known = self.keep[rows]
        known = known[np.isfinite(known)]
        return int(known.min()) if len(known) else None

    def cutoff(self, rows: Rows, keep: int | None) -> float:
        """Steps up to which the rows' order statistics are exact.

        That is X(keep) of the rows: beyond it, what is known depends on the order of training. A
        row that was dominated by trials which are not among ``rows`` (the first n of a study, one
        of its searches) says that it takes more steps than it ran, and nothing beyond.
        """
        unknown = rows[self.dominated[rows] & ~np.isfinite(self.steps[rows])]
        ran = self.steps_run[unknown]
        return min(last_exact(self.steps[rows], keep), float(np.nanmin(ran, initial=np.inf)))

    def infeasible(self, rows: Rows, cutoff: float) -> NDArray[np.bool_]:
        """A trial that diverged after the last exact order statistic would have been cut off
        before, had it been trained later: it counts as feasible."""
        return self.diverged[rows] & (np.nan_to_num(self.steps_run[rows]) <= cutoff)

    def rates(self, hit: Rows) -> tuple[float, ...]:
        """Learning rates of the best of the trials ``hit`` (best first), best first."""
        pairs = (
            (
                number(self.rows["effective_learning_rate"][i]),
                number(self.rows["learning_rate"][i]),
            )
            for i in hit[:BAR]
        )
        found = (plain if effective is None else effective for effective, plain in pairs)
        return tuple(rate for rate in found if rate is not None)


def number(value: Any) -> float | None:
    """A float; None for any null."""
    if value is None or value is pd.NA or value != value:
        return None
    return float(value)
