"""The 90 % intervals cover, and regimes are not claimed that are not there: by simulation.

The full table is made by a command; here are the cells that are hardest or plainest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.simulate import Cell, coverage, doubling

TWELVE = doubling(12)
CURVES = 200
CELLS = (
    Cell(batch_sizes=TWELVE, critical=45, bend=1.0, noise=0.05),
    Cell(batch_sizes=TWELVE, critical=45, bend=0.6, noise=0.02),
    Cell(batch_sizes=TWELVE, critical=45, bend=3.0, noise=0.10),
    Cell(batch_sizes=TWELVE, critical=2000, bend=1.0, noise=0.05),
    Cell(batch_sizes=TWELVE, critical=1, bend=1.0, noise=0.05),
    Cell(batch_sizes=tuple(2.0**i for i in range(4, 10)), critical=90, bend=0.6, noise=0.05),
    Cell(batch_sizes=doubling(6, by=4), critical=32, bend=1.0, noise=0.05, repeats=3),
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return coverage(CELLS, CURVES, seed=20)


def test_intervals_cover(table: pd.DataFrame) -> None:
    # 200 draws of a rate of 0.88 stay above 0.81 with probability 0.998.
    worst = table.loc[table["covered"].idxmin()]
    assert worst["covered"] >= 0.80, worst.to_dict()
    means = table.groupby("quantity")["covered"].mean()
    assert means.min() >= 0.86
    closed = table[table["open"] < 0.05]
    assert 0.86 <= closed["covered"].mean() <= 0.94


def test_regimes_are_seldom_claimed_falsely(table: pd.DataFrame) -> None:
    absent = table[table["there"].eq(False)]
    assert len(absent) >= 4
    assert absent["claimed"].max() <= 0.05
    assert absent["claimed"].mean() <= 0.02


def test_regimes_that_are_there_are_claimed(table: pd.DataFrame) -> None:
    plain = table[table["there"].eq(True) & (table["bend"] == 1.0)]
    assert len(plain) >= 4
    assert plain["claimed"].min() >= 0.85


def test_the_noise_deviation_is_unbiased(table: pd.DataFrame) -> None:
    from analysis.simulate import simulate

    found = simulate(CELLS[0], 200, seed=1)
    kept = ~found.fitted.left_out.any(1)
    assert np.sqrt(np.square(found.fitted.noise[kept]).mean()) == pytest.approx(0.05, rel=0.06)
    assert len(table) == len(CELLS) * 5
