"""Default budgets of a figure: round ones that the trials were trained for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.limits import Limit, grows, steps_an_epoch
from analysis.curves.units import TOKENS

_SERIES = 4
_RATIO = 4.0
"""Each budget over the next smaller one, about."""


def series(trials: pd.DataFrame) -> list[Limit]:
    """Budgets of steps, then of epochs (of examples where the training set's size is not known),
    smallest first; the largest is the one that every batch size was trained for."""
    if grows(trials):  # then examples are no function of steps and the batch size
        return _series(trials, "steps")
    return [*_series(trials, "steps"), *_series(trials, _second_unit(trials))]


def _second_unit(trials: pd.DataFrame) -> str:
    """Epochs where all trials have them, else examples (tokens, where those are counted)."""
    examples = "examples"
    if "tokens_per_example" in trials and trials["tokens_per_example"].eq(1).all():
        examples = TOKENS
    if "train_examples" not in trials:
        return examples
    whole = pd.to_numeric(trials["train_examples"]) >= pd.to_numeric(trials["batch_size"])
    return "epochs" if whole.fillna(False).all() else examples


def _series(trials: pd.DataFrame, unit: str) -> list[Limit]:
    trials = trials[trials["role"].isin(("search", "extension")) | trials["role"].isna()]
    budget = pd.to_numeric(trials["budget_steps"]).astype(float)
    ran = pd.to_numeric(trials["steps_run"]).astype(float)
    amounts = _in_unit(trials, budget.fillna(ran).to_numpy(dtype=float), unit)
    largest = pd.Series(amounts).groupby(trials["batch_size"].to_numpy()).max().dropna()
    if largest.empty or largest.min() <= 0:
        return []
    top = float(largest.min())
    rounded = [_rounded(top / _RATIO**i) for i in reversed(range(_SERIES))]
    least = 1 if unit != "epochs" else 0
    return [Limit(amount=a, unit=unit) for a in dict.fromkeys(rounded) if a >= least]


def _in_unit(trials: pd.DataFrame, steps: np.ndarray, unit: str) -> np.ndarray:
    """``steps`` of each trial in steps, epochs or examples; (n,)."""
    sizes = trials["batch_size"].to_numpy(dtype=float)
    if unit == "steps":
        return steps
    if unit in ("examples", TOKENS):
        return np.asarray(steps * sizes)
    train = pd.to_numeric(trials["train_examples"]).to_numpy(dtype=float)
    epochs = [steps_an_epoch(size, total) for size, total in zip(sizes, train, strict=True)]
    return np.asarray(steps / np.array(epochs, dtype=float))


def _rounded(value: float) -> Fraction:
    """The largest 1, 2 or 5 times a power of ten that is not above ``value``."""
    power = 10.0 ** np.floor(np.log10(value))
    digit = max(digit for digit in (1.0, 2.0, 5.0) if digit * power <= value * (1 + 1e-9))
    # As it is written: 0.1, not the nearest product.
    return Fraction(f"{digit * power:.3g}")


def pair(trials: pd.DataFrame, curve: Curve) -> list[Limit]:
    """A budget of epochs (or examples) and one of steps that are the same at the middle batch size
    of ``curve``: there half of the trials that reach the target reach it within them, about."""
    hits = [point for point in curve.points if any(trial.steps for trial in point.trial_outcomes)]
    if not hits:
        return []
    middle = hits[len(hits) // 2].trial_outcomes
    steps = float(np.median([trial.steps for trial in middle if trial.steps is not None]))
    ran = [trial.trial for point in curve.points for trial in point.trial_outcomes]
    unit = _second_unit(trials[trials["trial"].isin(ran)])
    first = trials[trials["trial"].isin([middle[0].trial])].iloc[:1]
    amount = float(_in_unit(first, np.array([steps]), unit)[0])
    # To two digits.
    return [
        Limit(amount=Fraction(f"{value:.2g}"), unit=name)
        for value, name in ((amount, unit), (steps, "steps"))
    ]
