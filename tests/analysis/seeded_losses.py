"""Made final losses at one budget: optimizers at several batch sizes, with seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.figure_data import FigureData, Query
from tests.analysis.gallery import Row, as_it_is

Loss = Callable[[float], float]
SIZES = (2**17, 2**19, 2**20, 2**21)
BUDGET = 1.7e9


def power(least: float, rise: float, exponent: float) -> Loss:
    """``least`` at small batches, ``rise`` more at 2^20."""
    return lambda size: least + rise * (size / 2**20) ** exponent


CURVES: Mapping[str, Loss] = {
    "alpha": power(3.30, 0.10, 0.9),
    "beta": power(3.25, 0.092, 0.8),
    "gamma": power(3.24, 0.130, 0.9),
}
OPTIMIZERS = ("sgd", "momentum", "adam")
CROSSING = 345_130
"""Where gamma and beta are equal: gamma is better below, beta above."""


def finals(
    curves: Mapping[str, Loss],
    *,
    noise: float,
    seeds: int,
    rng: np.random.Generator,
    sizes: Sequence[int] = SIZES,
    configurations: int = 1,
) -> list[FinalLosses]:
    """Each the best of so many equal configurations, by the mean over seeds."""
    made = []
    for name, loss in curves.items():
        points = []
        for size in sizes:
            runs = loss(size) + noise * rng.standard_normal((configurations, seeds))
            best = runs[runs.mean(axis=1).argmin()]
            points.append(FinalLoss(
                batch_size=size, budget=BUDGET, examples=BUDGET, value=float(best.mean()),
                configurations=configurations, runs=tuple(map(float, best)),
            ))  # fmt: skip
        made.append(FinalLosses(
            group={"optimizer": name}, label=name, metric="loss", lower_is_better=True,
            points=tuple(points),
        ))  # fmt: skip
    return made


def table(*, seeds: int = 2, noise: float = 5e-4) -> pd.DataFrame:
    """A row a run, as people log them: whole steps make the tokens of a run."""
    rng = np.random.default_rng(14)
    return pd.DataFrame(
        {
            "optimizer": name,
            "batch_size": size,
            "tokens": round(BUDGET / size) * size,
            "seed": seed,
            "validation_loss": round(loss(size) + noise * rng.standard_normal(), 5),
        }
        for name, loss in CURVES.items()
        for size in SIZES
        for seed in range(seeds)
    )


def of_file(folder: Path, change: Callable[[Row], Row] = as_it_is) -> FigureData:
    """The table as a file, of packaged optimizers, described as ``change`` makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        part.assign(**change({"workload": "made", "optimizer": name}))
        for name, (_, part) in zip(OPTIMIZERS, table().groupby("optimizer"), strict=True)
    ]
    pd.concat(parts).to_csv(folder / "final.csv", index=False)
    return FigureData(Query(sources=[folder / "final.csv"]))
