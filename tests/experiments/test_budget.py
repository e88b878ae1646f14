"""Budgets: sums with units, exact, in whole steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.amounts import Budget
from experiments.errors import ExperimentError


@pytest.mark.parametrize(
    ("text", "batch_size", "steps"),
    [
        ("2000 steps", 64, 2000),
        ("50 epochs + 2000 steps", 1, 50 * 1297 + 2000),
        ("50 epochs + 2000 steps", 1024, 50 + 2000),  # the short last batch is dropped
        ("1 epoch", 1297, 1),
        ("10000 examples", 64, 156),
        ("1e6 examples", 1000, 1000),
        ("0.5 epochs+1 step", 64, 11),
        ("0.1 epochs", 1297, 0),
        ("0.3 steps + 0.7 steps", 1, 1),  # exact, as binary floats are not
    ],
)
def test_a_sum_in_steps(text, batch_size, steps):
    assert Budget.parse(text).in_steps(batch_size, 1297) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (2000, "budget 2000 has no unit"),
        ("2000", "budget '2000' is not a sum of epochs, steps, examples and tokens"),
        ("50 epoch s", "is not a sum"),
        ("50 fortnights", "unknown unit 'fortnights'"),
        ("-3 steps", "is not a sum"),
        ("0 steps", "is zero"),
        ("", "is not a sum"),
        ("5 steps +", "is not a sum"),
        (["5 steps"], "is not a sum"),
        (True, "is not a sum"),
    ],
)
def test_what_is_no_budget(text, message):
    with pytest.raises(ExperimentError, match=message):
        Budget.parse(text)


@given(st.decimals(0, 10**6, places=3), st.integers(1, 10**7), st.decimals(0, 10**9, places=1))
def test_text_and_budget_are_the_same(epochs, steps, examples):
    text = f"{epochs:f} epochs + {steps} steps + {examples:f} examples"
    budget = Budget.parse(text)
    assert Budget.parse(str(budget)) == budget


def test_the_written_form_leaves_out_what_is_zero():
    assert str(Budget.parse("2000 steps + 50.50 epochs")) == "50.5 epochs + 2000 steps"
