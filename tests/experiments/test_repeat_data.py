"""``repeat_data: false``: one pass over the training set at most, and an identity of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.errors import ExperimentError
from experiments.training.batch_order import BatchOrder
from tests.experiments.files import own
from tests.problems import engine, largest_difference, study, trials

TEXT = """workload: digits-softmax
grid: {{batch_size: {}, optimizer: sgd}}
search: {{learning_rate: {{log: [0.01, 0.1]}}}}
trials: 4
budget: {}
"""


def experiment(tmp_path: Path, sizes: str, budget: str, more: str = "repeat_data: false") -> Any:
    return own(tmp_path, TEXT.format(sizes, budget) + more + "\n")


def test_an_epoch_is_a_pass_at_every_batch_size(tmp_path: Path) -> None:
    plans = experiment(tmp_path, "[1..1024, full]", "1 epoch").studies()
    assert [p.budget_steps for p in plans] == [1297 // p.batch_size for p in plans]
    assert not any(p.repeat_data for p in plans)


def test_it_is_part_of_the_identity_only_when_set(tmp_path: Path) -> None:
    default, stated, single = (
        experiment(tmp_path, "64", "1 epoch", more).studies()[0]
        for more in ("", "repeat_data: true", "repeat_data: false")
    )
    assert "repeat_data" not in default.identity
    assert default == stated
    assert single.identity == {**default.identity, "repeat_data": False}
    assert single.id != default.id
    assert single.trial(0).id != default.trial(0).id


def test_data_without_end_are_never_repeated(tmp_path: Path) -> None:
    text = TEXT.format("64", "10000 steps").replace("digits-softmax", "teacher")
    assert own(tmp_path, text + "repeat_data: false\n").studies()[0].budget_steps == 10_000


def test_a_batch_order_of_a_single_pass() -> None:
    order, whole = BatchOrder(5, 103, 10, repeat=False), BatchOrder(5, 103, 10)
    assert torch.equal(order.batches(0, 10), whole.batches(0, 10))
    assert len(order.batches(0, 10).unique()) == 100
    for step, count in ((10, 1), (9, 2), (0, 11)):
        with pytest.raises(ExperimentError) as caught:
            order.batches(step, count)
        assert str(caught.value) == (
            f"step {step + count} at batch size 10 is beyond one pass over the training set "
            "(103 examples)"
        )


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_an_engine_takes_a_single_pass(kind: str) -> None:
    single, repeated = study(repeat_data=False), study()
    rows = trials(single, 2)  # 1,297 examples, 64 a step
    trained, other = (engine(kind, each, rows, steps=20) for each in (single, repeated))
    assert largest_difference(trained.weights(0), other.weights(0)) == 0
    other.advance(1)
    with pytest.raises(ExperimentError, match="beyond one pass"):
        trained.advance(1)


def test_a_stack_goes_on_behind_a_row_that_has_had_its_pass() -> None:
    single = study(repeat_data=False)
    first, second = trials(single, 2)
    stack = engine("stacked", single, (first,), steps=5)
    stack.add([second])
    stack.advance(15)
    stack.keep([1])
    stack.advance(5)
    alone = engine("stacked", single, (second,), steps=20)
    assert largest_difference(stack.weights(0), alone.weights(0)) == 0
