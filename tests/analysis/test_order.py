"""Order statistics and the error bar of a best of N."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curves.runs import error_bar, last_exact, order_statistic


def test_missing_values_are_beyond_every_other() -> None:
    assert order_statistic([5, None, 3.0, nan, inf, 4], 3) == 5
    assert order_statistic([5, None, 3.0], 3) is None


def test_ties_count_each() -> None:
    assert order_statistic([3, 3, 3, 9], 3) == 3


def test_there_is_no_zeroth() -> None:
    with pytest.raises(ValueError, match="smallest is 1"):
        order_statistic([1], 0)


@given(st.lists(st.floats(1, 1e6), min_size=1), st.integers(1, 8))
def test_is_the_sorted_list(values: list[float], r: int) -> None:
    expected = sorted(values)[r - 1] if len(values) >= r else None
    assert order_statistic(values, r) == expected


def test_the_last_exact_one() -> None:
    assert last_exact([7, 5, 6], 2) == 6
    assert last_exact([7, 5, 6], None) == inf
    assert last_exact([7], 4) == inf


def test_the_bar_is_symmetric_in_log_steps() -> None:
    assert error_bar(100, 125) == (80, 125)
    assert error_bar(100, None) == (100, inf)
    assert error_bar(None, None) is None
