"""Made final losses of a known law, as points and as the rows of a file.

The loss at budget D and batch size B is E + A (D / c)^-beta, where c is how many times more
examples the batch size needs than the best one, or than an infinitely small one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.figure_data import FigureData, Query
from tests.analysis.gallery import Row, as_it_is

FLOOR, AMPLITUDE, BETA = 2.0, 20.0, 0.2
COEFFICIENT, EXPONENT = 0.5, 0.45
"""The law of the optimal batch size."""
CRITICAL, LEAST_EXAMPLES = 512, 2e6
"""Of the curve at the loss ``TARGET``."""
TARGET = FLOOR + AMPLITUDE * LEAST_EXAMPLES**-BETA

BUDGETS = [2.0**i for i in range(20, 27)]

Surface = Callable[[float, float], float]


def knee(budget: float, size: float) -> float:
    """At every loss McCandlish's knee with B_crit = ``CRITICAL``."""
    return FLOOR + AMPLITUDE * (budget / (1 + size / CRITICAL)) ** -BETA


def steps_of_knee(size: float) -> float:
    """Steps to ``TARGET``."""
    return LEAST_EXAMPLES / size * (1 + size / CRITICAL)


def valley(budget: float, size: float) -> float:
    """B_opt = ``COEFFICIENT`` D^``EXPONENT``: the cost rises to both sides of it."""
    away = size / (COEFFICIENT * budget**EXPONENT)
    return FLOOR + AMPLITUDE * (budget / ((1 + away / 40) * (1 + 1 / (40 * away)))) ** -BETA


def parabola(budget: float, size: float) -> float:
    """The same B_opt, the loss a parabola in log B."""
    away = np.log(size / (COEFFICIENT * budget**EXPONENT))
    return float(FLOOR + AMPLITUDE * budget**-BETA + 0.01 * away**2)


def final(
    surface: Surface,
    sizes: Sequence[int],
    budgets: Sequence[float],
    noise: float = 0.0,
    seed: int = 0,
    lower: bool = True,
) -> FinalLosses:
    """The final losses of a surface, one run a batch size and budget."""
    rng, sign = np.random.default_rng(seed), 1 if lower else -1
    points = [
        FinalLoss(
            batch_size=size,
            budget=budget,
            examples=budget,
            value=sign * (surface(budget, size) + noise * rng.standard_normal()),
            configurations=1,
        )
        for budget in budgets
        for size in sizes
    ]
    return FinalLosses(
        group={}, label="made", metric="loss", lower_is_better=lower, points=tuple(points)
    )


def rows(
    surface: Surface, sizes: Sequence[int], budgets: Sequence[float], rates: Sequence[float]
) -> str:
    """The same as CSV text, with runs at several learning rates; the second one is the best."""
    lines = ["batch_size,examples,learning_rate,train_loss"]
    for budget in budgets:
        for size in sizes:
            for rate in rates:
                loss = float(surface(budget, size) + 0.05 * np.log(rate / rates[1]) ** 2)
                lines.append(f"{size},{budget:.0f},{rate:g},{loss!r}")
    return "\n".join(lines) + "\n"


def finals(folder: Path, change: Callable[[Row], Row] = as_it_is) -> FigureData:
    """Final losses of two optimizers, whose description is as ``change`` makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = rows(
        parabola, [2**i for i in range(6, 14)], [2.0**i for i in range(20, 27)], [1e-3, 2e-3]
    )
    frame = pd.read_csv(io.StringIO(text))
    described = [change({"workload": "made", "optimizer": name}) for name in ("sgd", "adam")]
    path = folder / "final.csv"
    pd.concat([frame.assign(**each) for each in described]).to_csv(path, index=False)
    return FigureData(Query(sources=[path]))
