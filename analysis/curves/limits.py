"""Budgets under which results are compared: "5000 steps", "10 epochs", "1e6 examples", "1e8
tokens".

A search that trained on past its target has the result of every smaller budget too. An epoch is
defined as in the budget of an experiment: ``train_examples // batch_size`` steps, since the last
short batch of an epoch is dropped; fractions are exact, and rounded down to whole steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.curves.runs import numeric
from analysis.curves.units import EXAMPLES, TOKENS, in_unit
from results.errors import ResultsError, nearest

UNITS = ("steps", "epochs", "examples", "tokens")
_EXAMPLE = 'for example: --under "5000 steps" --under "10 epochs"'
_PATTERN = re.compile(r"^\s*(\d[\d,_]*(?:\.\d*)?|\.\d+)((?:[eE][-+]?\d+)?)\s*([A-Za-z]*)\s*$")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit in steps, epochs of the training set, examples or tokens."""

    amount: Fraction
    unit: str
    """One of ``UNITS``."""

    @classmethod
    def parse(cls, text: str | Limit) -> Limit:
        """Read ``"5000 steps"``, ``"10 epochs"``, ``"1e6 examples"`` or ``"1e8 tokens"``.

        Raises:
            ResultsError: the text is none of these.
        """
        if isinstance(text, Limit):
            return text
        match = _PATTERN.match(text)
        if not match:
            raise ResultsError(f"{text!r} is not a budget", hint=_EXAMPLE)
        unit = match[3].lower()
        unit = unit if unit.endswith("s") or not unit else f"{unit}s"
        if unit not in UNITS:
            message = f"{match[3]!r} is not a unit of a budget" if unit else f"{text!r} has no unit"
            raise ResultsError(message, hint=nearest(unit, UNITS, _EXAMPLE))
        digits = re.sub("[,_]", "", match[1]) + match[2]
        if not 0 < float(digits) < np.inf:
            raise ResultsError(f"a budget of {text!r} is none", hint=_EXAMPLE)
        return cls(amount=Fraction(digits), unit=unit)

    def steps(
        self, batch_size: NDArray[np.float64], train: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The last step within it; (n,) of batch sizes (in tokens, for a limit in tokens) and of
        examples in the training set.

        NaN where it is in epochs and the training set's size is NaN.
        """

        def last(size: float, examples: float) -> float:
            if self.unit in ("examples", "tokens"):
                return float(self.amount / Fraction(size) // 1)
            if self.unit == "steps":
                return float(self.amount // 1)
            return float(self.amount * steps_an_epoch(size, examples) // 1) if examples else np.nan

        pairs = list(zip(batch_size.tolist(), np.nan_to_num(train).tolist(), strict=True))
        by_pair = {pair: last(*pair) for pair in dict.fromkeys(pairs)}
        return np.array([by_pair[pair] for pair in pairs], dtype=float)

    def __str__(self) -> str:
        whole = self.amount.denominator == 1
        amount = f"{self.amount.numerator:,}" if whole else str(float(self.amount))
        return f"{amount} {self.unit[:-1] if self.amount == 1 else self.unit}"


def check_limits(limits: Sequence[Limit], unit: str | None) -> None:
    """Batch sizes in tokens are not those of a budget in examples.

    Raises:
        ResultsError: there is such a budget.
    """
    for limit in limits:
        if unit == TOKENS and limit.unit == EXAMPLES:
            message = f"a budget of {limit}, and the unit is tokens"
            raise ResultsError(message, hint='give it in tokens: --under "1e6 tokens"')


def steps_an_epoch(batch_size: float, train: float) -> int:
    """Whole batches in a training set of ``train`` examples."""
    return int(train // batch_size)


def grows(trials: pd.DataFrame) -> bool:
    """Whether the batch size of any of them grows during training."""
    return "batch_sizes" in trials and bool(trials["batch_sizes"].notna().any())


def steps_within(trials: pd.DataFrame, limit: Limit) -> NDArray[np.float64]:
    """The last step of each trial within ``limit``, by its batch size and training set; (n,).

    Raises:
        ResultsError: the limit is in epochs, and the size of a training set is not recorded; or it
            is in tokens, and the tokens of an example are not.
    """
    if limit.unit != "steps" and grows(trials):
        raise ResultsError(
            f"{limit}: the batch size of some of these trials grows during training",
            hint='give it in steps: --under "5000 steps"; or --where "ramp IS NULL"',
        )
    sizes = trials["batch_size"].to_numpy(dtype=float)
    if limit.unit == "tokens":
        sizes = in_unit(trials, TOKENS)["batch_size"].to_numpy(dtype=float)
    recorded = "train_examples" in trials
    train = trials["train_examples"] if recorded else pd.Series(np.nan, trials.index)
    steps = limit.steps(sizes, pd.to_numeric(train).to_numpy(dtype=float, na_value=np.nan))
    lacking = np.isnan(steps)
    if lacking.any():
        named = sorted({str(name) for name in trials["workload"][lacking].dropna()})
        of = f" of {', '.join(named[:3])}" if named else ""
        raise ResultsError(
            f"{limit}: the size of the training set{of} is not recorded",
            hint='give it in examples: --under "1e6 examples"; or leave those out with --where',
        )
    return steps


def within(trials: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
    """``trials`` as if they had been stopped at the smallest of ``limits``.

    One that reached its target later did not reach it; one that was dominated beyond the limit
    did not either, and that is known. Infeasible ones stay so, whenever they diverged.

    Raises:
        ResultsError: as ``steps_within``.
    """
    if not limits:
        return trials
    last = np.min([steps_within(trials, limit) for limit in limits], axis=0)
    numbers = partial(numeric, trials)
    late = numbers("steps_to_target") > last
    past = trials["stop_reason"].eq("dominated").to_numpy() & (numbers("steps_run") >= last)
    cut = late | past
    steps, miss = (np.where(late, np.nan, numbers(n)) for n in ("steps_to_target", "last_miss"))
    changed: dict[str, Any] = {
        "steps_to_target": steps,
        "last_miss": miss,
        "status": trials["status"].mask(cut, "COMPLETE"),
        "stop_reason": trials["stop_reason"].mask(cut, "budget"),
    }
    if "undecided_evaluations" in trials:
        settled = late & (numbers("last_miss") >= last)
        open_ = numbers("undecided_evaluations")
        changed["undecided_evaluations"] = np.where(settled, np.nan, open_)
    return trials.assign(**changed)
