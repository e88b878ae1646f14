"""Budgets to show where none is asked for: round ones that the trials were trained for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.limits import Limit, steps_an_epoch

_SERIES = 4
_APART = 4.0
"""Each budget over the next smaller one, about."""


def series(trials: pd.DataFrame) -> list[Limit]:
    """Budgets of steps, then of epochs (of examples where the training set's size is not known),
    smallest first; the largest is the one that every batch size was trained for."""
    return [*_of(trials, "steps"), *_of(trials, second_unit(trials))]


def second_unit(trials: pd.DataFrame) -> str:
    """Epochs where all trials have them, else examples."""
    if "train_examples" not in trials:
        return "examples"
    whole = pd.to_numeric(trials["train_examples"]) >= pd.to_numeric(trials["batch_size"])
    return "epochs" if whole.fillna(False).all() else "examples"


def _of(trials: pd.DataFrame, unit: str) -> list[Limit]:
    searched = trials[trials["role"].isin(("search", "extension")) | trials["role"].isna()]
    budget = pd.to_numeric(searched["budget_steps"]).astype(float)
    ran = pd.to_numeric(searched["steps_run"]).astype(float)
    amount = in_unit(searched, budget.fillna(ran).to_numpy(dtype=float), unit)
    # Of the largest of each batch size the least.
    each = pd.Series(amount).groupby(searched["batch_size"].to_numpy()).max().dropna()
    if each.empty or each.min() <= 0:
        return []
    top = float(each.min())
    tops = [rounded(top / _APART**i) for i in reversed(range(_SERIES))]
    least = 1 if unit != "epochs" else 0
    return [Limit(amount=one, unit=unit) for one in dict.fromkeys(tops) if one >= least]


def in_unit(trials: pd.DataFrame, steps: np.ndarray, unit: str) -> np.ndarray:
    """``steps`` of each trial in steps, epochs or examples; (n,)."""
    sizes = trials["batch_size"].to_numpy(dtype=float)
    if unit == "steps":
        return steps
    if unit == "examples":
        return np.asarray(steps * sizes)
    train = pd.to_numeric(trials["train_examples"]).to_numpy(dtype=float)
    epochs = [steps_an_epoch(size, of) for size, of in zip(sizes, train, strict=True)]
    return np.asarray(steps / np.array(epochs, dtype=float))


def rounded(value: float) -> Fraction:
    """The largest 1, 2 or 5 times a power of ten that is not above ``value``."""
    power = 10.0 ** np.floor(np.log10(value))
    head = max(one for one in (1.0, 2.0, 5.0) if one * power <= value * (1 + 1e-9))
    # As it is written: 0.1, not the nearest product.
    return Fraction(f"{head * power:.3g}")


def two(trials: pd.DataFrame, curve: Curve) -> list[Limit]:
    """A budget of epochs (or examples) and one of steps that are the same at the middle batch size
    of ``curve``: there half of the trials that reach the target reach it within them, about."""
    at = [point for point in curve.points if any(one.steps for one in point.trial_outcomes)]
    if not at:
        return []
    middle = at[len(at) // 2]
    steps = float(np.median([one.steps for one in middle.trial_outcomes if one.steps is not None]))
    ran = [one.trial for point in curve.points for one in point.trial_outcomes]
    unit = second_unit(trials[trials["trial"].isin(ran)])
    mine = trials[trials["trial"].isin([middle.trial_outcomes[0].trial])].iloc[:1]
    amount = float(in_unit(mine, np.array([steps]), unit)[0])
    return [Limit(amount=nearest(amount), unit=unit), Limit(amount=nearest(steps), unit="steps")]


def nearest(value: float) -> Fraction:
    """``value`` to two digits."""
    return Fraction(f"{value:.2g}")
