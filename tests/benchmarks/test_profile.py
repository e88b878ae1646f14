"""What the demo's arithmetic needs, by hand."""

from __future__ import annotations

import pandas as pd

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


def test_the_products_of_a_step_are_a_part_of_it() -> None:
    context = StudyContext.load(load("digits").plans()[0].study)
    model = context.workload.model()
    batch = tuple(x[:2].repeat(500, *[1] * (x.dim() - 1)) for x in context.small_batch())

    def step(count: int) -> None:
        assert count == 1
        context.workload.loss(context.workload.forward(model, batch), batch).sum().backward()

    assert floor.product_seconds(step) > 0
    assert floor.product_seconds(lambda _: batch[0].exp().sum()) == 0
    names = ("aten::addmm", "aten::mkldnn_convolution", "aten::_scaled_dot_product_attention")
    assert all(floor._PRODUCT.search(name) for name in names)
    assert not floor._PRODUCT.search("aten::sum")
