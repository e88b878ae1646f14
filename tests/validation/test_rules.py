"""What a rule costs: the known answer itself, and that the intervals hold it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.fit.knee import sigmoid
from validation import page, rules
from validation.rules import BASE, RULES, SIZES, Block, Cell
from validation.surface import CRITICAL, excess

QUIET = Cell(dimensions=1, trials=16, noise=0.0)


def test_a_rule_that_follows_keeps_each_point_where_it_is_in_the_bowl() -> None:
    """The same distance from the best learning rate, and the same points diverge."""
    u = np.random.default_rng(0).random((50, 2))
    for size in SIZES:
        moved = rules.transferred(u, "follows", size)
        s, base = (sigmoid(np.log(x / CRITICAL)) for x in (size, BASE))
        assert moved[:, 0] - 0.3 * s == pytest.approx(u[:, 0] - 0.3 * base)
        assert (excess(moved, np.log(size))[1] == excess(u, np.log(BASE))[1]).all()
        assert (rules.transferred(u, "stays", size) == u).all()


def test_the_true_costs_are_those_of_the_bowl() -> None:
    """Without noise in one dimension: the best point lies almost at the bottom of the bowl, and at
    the bottom of that of the base with the rate that stays."""
    true = rules.truth(QUIET, 64)
    for size in SIZES:
        s, base = (float(sigmoid(np.log(x / CRITICAL))) for x in (size, BASE))
        by_hand = 12 * (1 + 0.5 * s) * (0.3 * (s - base)) ** 2
        assert true["stays", size] == pytest.approx(by_hand, abs=0.05)
        assert true["follows", size] == pytest.approx(0, abs=0.02)
    assert true["stays", 512] > 0.8


@pytest.mark.slow
def test_costs_are_measured_by_the_path_of_a_sweep_and_most_intervals_hold_the_truth() -> None:
    cell = Cell(dimensions=1, trials=16, noise=0.2)
    block = Block(cell=cell, number=0, truth=rules.truth(cell, 100), sweeps=8)
    counted = pd.DataFrame(rules.count(block))
    assert list(counted["batch_size"]) == [*SIZES] * len(RULES)
    assert (counted["costs"] == 8).all()
    assert (counted["closed_covered"] <= counted["covered"]).all()
    assert counted["covered"].sum() >= 0.8 * counted["known"].sum()
    again = pd.DataFrame(rules.count(block))
    pd.testing.assert_frame_equal(counted, again)
    assert "| follows | 1 | 16 | 20 % |" in rules.render(counted)


def test_the_page_has_the_table_of_the_kept_counts() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.sections(text)["rules"].strip() == rules.render(page.kept("rules")).strip()
