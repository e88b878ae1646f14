"""The 90 % intervals cover, and regimes are not claimed that are not there: docs/truth.md.

The table's full counts are committed; here some of its blocks are run again, so that they cannot
go stale, and the demands are held to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.fit.estimate import fitted
from analysis.fit.knee import QUANTITIES
from tests.marks import quick
from validation import coverage, outside, searches
from validation.coverage import Block
from validation.page import PAGE, kept, sections
from validation.simulate import Cell, doubling, draw
from validation.tally import ENOUGH, REGIMES, claims


def row_of(frame: pd.DataFrame, **where: object) -> Mapping[str, Any]:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    (row,) = frame.to_dict("records")
    return {str(name): value for name, value in row.items()}


def assert_same(again: Mapping[str, object], row: Mapping[str, object]) -> None:
    """The same counts, but for one curve that another processor's rounding may tip over."""
    assert list(again) == list(row)
    for name, value in again.items():
        if isinstance(value, int) and not isinstance(row[name], str):
            assert abs(value - row[name]) <= 1, name  # type: ignore[operator]
        elif isinstance(value, float):
            assert value == pytest.approx(row[name], rel=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "repeats", "bend", "grid"), quick([(0.10, 1, 1.0, "both"), (0.02, 3, 3.0, "none")], 1)
)
def test_a_block_of_the_first_table_comes_out_again(
    noise: float, repeats: int, bend: float, grid: str
) -> None:
    where = {"noise": noise, "repeats": repeats, "bend": bend, "grid": grid}
    again = coverage.count(Block(noise=noise, repeats=repeats, bend=bend, grid=grid))
    assert_same(again, row_of(kept("coverage"), **where))


@pytest.mark.slow
def test_a_block_of_the_second_table_comes_out_again() -> None:
    where = {"shape": "slow plateau", "noise": 0.05, "repeats": 1, "number": 1}
    again = outside.count(outside.Block(shape="slow plateau", noise=0.05, repeats=1, number=1))
    assert_same(again, row_of(kept("outside"), **where))


@pytest.mark.slow
def test_a_block_of_the_third_table_comes_out_again() -> None:
    cell = searches.Cell(dimensions=2, trials=16, noise=0.05)
    where = {"dimensions": 2, "trials": 16, "noise": 0.05, "block": 3}
    row = row_of(kept("searches"), **where)
    truth = {name: float(np.log(float(str(row[f"true:{name}"])))) for name in QUANTITIES}
    assert_same(searches.count(searches.Block(cell=cell, number=3, truth=truth)), row)


@pytest.mark.parametrize("part", [coverage, outside, searches])
def test_the_page_is_what_its_counts_give(part) -> None:
    name = part.__name__.rpartition(".")[2]
    text = sections(PAGE.read_text(encoding="utf-8"))[name]
    assert text == part.render(kept(name)).strip()


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return kept("coverage")


def test_every_cell_has_a_thousand_curves(table: pd.DataFrame) -> None:
    cells = table.groupby(["noise", "repeats"])["curves"].sum()
    assert len(cells) == 15
    assert cells.min() >= 1000
    assert sorted(table["bend"].unique()) == [0.6, 0.8, 1.0, 1.7, 3.0]


def test_intervals_cover_in_every_cell(table: pd.DataFrame) -> None:
    cells = table.groupby(["noise", "repeats"]).sum(numeric_only=True)
    for name in QUANTITIES:
        covered = cells[f"covered:{name}"] / cells["curves"]
        assert covered.min() >= 0.80, name
        assert 0.85 <= covered.mean() <= 0.95, name


def test_regimes_are_seldom_claimed_falsely_or_missed(table: pd.DataFrame) -> None:
    for name in REGIMES:
        assert table[f"false:{name}"].sum() <= 0.03 * table[f"absent:{name}"].sum()
        there, claimed = claims(table, name, ENOUGH)
        assert there > 1000
        assert claimed >= 0.85 * there


def test_the_noise_deviation_is_unbiased() -> None:
    x, y = draw(Cell(batch_sizes=doubling(12), critical=45.0), 200, seed=1)
    found = fitted(x, y, np.ones_like(x), tolerance=0.2, level=0.9)
    whole = ~found.left_out.any(1)
    assert np.sqrt(np.square(found.noise[whole]).mean()) == pytest.approx(0.05, rel=0.06)
