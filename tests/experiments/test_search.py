"""Search tables: their rows never change, and they cover the space evenly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.search import Table, table
from experiments.space import Dimension

SPACE = {
    "momentum": Dimension.parse("reverse_log", [0.5, 0.99]),
    "learning_rate": Dimension.parse("log", [1e-4, 10]),
    "width": Dimension.parse("integer", [1, 8]),
}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 300), st.integers(0, 300))
def test_the_first_rows_never_change(seed, few, more):
    few, more = sorted((few, more))
    assert table(SPACE, seed, few) == table(SPACE, seed, more)[:few]


def test_rows_are_fixed_for_good():
    """Of another version of scipy too: recorded trials would otherwise be trained again."""
    assert table(SPACE, 7, 3) == ROWS


ROWS = [
    {"learning_rate": 0.178703994, "momentum": 0.9861806519, "width": 1},
    {"learning_rate": 0.000543914491, "momentum": 0.812224621, "width": 5},
    {"learning_rate": 0.0209426518, "momentum": 0.9572074118, "width": 3},
]


def test_rows_in_any_order_of_asking():
    drawn = Table(SPACE, 3)
    late = drawn.rows(100, 130)
    assert drawn.rows(0, 200) == table(SPACE, 3, 200)
    assert late == table(SPACE, 3, 130)[100:]


def test_a_row_that_is_changed_by_its_reader_does_not_change_the_table():
    drawn = Table(SPACE, 3)
    drawn.rows(0, 1)[0]["momentum"] = 0
    assert drawn.rows(0, 1) == table(SPACE, 3, 1)


def test_the_order_of_the_file_means_nothing():
    assert table(SPACE, 5, 8) == table(dict(reversed(SPACE.items())), 5, 8)


def test_seeds_give_different_blocks():
    assert table(SPACE, 1, 8) != table(SPACE, 2, 8)


@pytest.mark.parametrize("n", [16, 64, 256])
def test_blocks_of_a_power_of_two_are_balanced(n):
    """One point in each of n equal intervals of each dimension: what Sobol's points are for."""
    rows = table(SPACE, 11, n)
    for name in ("learning_rate", "momentum"):
        cells = {int(SPACE[name].unit(row[name]) * n) for row in rows}
        assert len(cells) == n
    widths = [row["width"] for row in rows]
    assert {widths.count(width) for width in range(1, 9)} == {n // 8}


def test_nothing_to_tune_gives_empty_rows():
    assert table({}, 1, 3) == [{}, {}, {}]


def test_many_rows():
    assert len(table(SPACE, 1, 100_000)) == 100_000
