"""What the demo's arithmetic needs, by hand."""

from __future__ import annotations

import pandas as pd
import torch

from benchmarks import floor, profile
from experiments.config.compile import load
from experiments.training.study_context import StudyContext


def test_operations_of_an_example() -> None:
    """64 inputs, 64 hidden units, 10 classes: two operations a multiply-add, three products of each
    layer in training but that for the gradient of the data."""
    context = StudyContext.load(load("digits").plans()[0].study)
    forward = 2 * (64 * 64 + 64 * 10)
    assert floor.operations_of_example(context) == (2 * forward + 2 * 64 * 10, forward)


def test_a_part_takes_as_long_as_the_slower_of_arithmetic_and_memory() -> None:
    trials = pd.DataFrame({"steps_run": [10, 100], "batch_size": [8, 2], "optimizer": "momentum"})
    operations, moved = 280 * 20_224, 110 * 5 * 4_810 * 4 + 280 * (64 * 4 + 8)
    slow_products = floor.Rates(operations=1.0, memory=1e30)
    slow_memory = floor.Rates(operations=1e30, memory=1.0)
    for rates, seconds in ((slow_products, operations), (slow_memory, moved)):
        least = profile.needed(load("digits"), trials, 3, rates)
        assert least["steps"] == (operations, moved, seconds)
        assert least["evaluations"][0] == 3 * 500 * 9_472


def test_products_of_a_step_are_found_and_run_again() -> None:
    weights = torch.zeros(3, 4, requires_grad=True)

    def step(count: int) -> None:
        assert count == 1
        (torch.ones(5, 3) @ weights).relu().sum().backward()

    products = floor._Products()
    with products:
        step(1)
    assert [tuple(call().shape) for call in products.calls] == [(5, 4), (3, 4)]  # type: ignore[attr-defined]
    assert floor.product_seconds(step) > 0
