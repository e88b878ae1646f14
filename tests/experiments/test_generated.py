"""Generated splits: no example twice, the same ones in any layout, resumed exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from experiments.plan import WorkloadRef
from experiments.training.batch_order import SequentialOrder
from experiments.training.study_context import StudyContext
from tests.problems import study, trials

NAMES = ["teacher", "markov"]
OWN = """
import torch
from batchscale import GeneratedSplit, Workload


class Squares(GeneratedSplit):
    def examples(self, indices):
        x = ((indices * 2654435761) % 1000).double() / 500 - 1
        return x.float().unsqueeze(1), (x * x).float()


class Parabola(Workload):
    target = "validation_squared_error < 0.01"

    def data(self):
        return {"train": Squares(), "validation": Squares().examples(torch.arange(200))}

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def augment(self, batch, generator):
        x, y = batch
        return x + 0.01 * torch.randn(x.shape, generator=generator), y

    def forward(self, model, batch):
        return model(batch[0]).squeeze(-1)

    def loss(self, output, batch):
        return (output - batch[1]) ** 2

    def metrics(self, output, batch):
        return {"squared_error": (output - batch[1]) ** 2}
"""

pytestmark = pytest.mark.usefixtures("one_thread")


def generated_study(name: str, **changes: Any):
    given = {"precision": "float64", "batch_size": 8, "target": "validation_excess_loss < 1e-9"}
    workload = WorkloadRef(spec=name, fields={"width": 8})
    return study(**{"workload": workload, "budget_steps": 60, "keep": None, **given, **changes})


@pytest.mark.parametrize("name", NAMES)
def test_no_example_occurs_twice(name: str) -> None:
    context = StudyContext.load(generated_study(name))
    rows = trials(context.study, 20)
    orders = [context.order(trial) for trial in rows]
    indices = torch.cat([order.batches(0, 500).flatten() for order in orders])  # type: ignore[union-attr]
    assert len(indices.unique()) == 20 * 500 * 8
    assert int(indices.min()) >= 0
    examples = context.train.fetch(indices[:20_000], training=True)
    if name == "teacher":  # different indices, different inputs
        assert len(examples[0].unique(dim=0)) == 20_000
    validation = context.splits["validation"].fetch(torch.arange(1000), training=False)
    if name == "teacher":
        both = torch.cat([examples[0], validation[0]])
        assert len(both.unique(dim=0)) == 21_000


def test_the_order_is_a_sequence_from_a_start_of_the_trial() -> None:
    order = SequentialOrder(7, 5)
    assert torch.equal(order.batches(0, 4).flatten(), torch.arange(order.start, order.start + 20))
    assert torch.equal(order.batches(2, 2), order.batches(0, 4)[2:])
    assert torch.equal(SequentialOrder(7, 10).batches(3, 1)[0], order.batches(6, 2).flatten())
    assert SequentialOrder(8, 5).start != order.start
    assert 0 <= order.start < 2**61


@pytest.mark.parametrize("name", NAMES)
def test_an_example_does_not_depend_on_the_others(name: str) -> None:
    """Bit for bit, whichever part of which batch it is computed in."""
    split = StudyContext.load(generated_study(name)).train
    indices = SequentialOrder(3, 64).batches(5, 2).flatten()
    whole = split.fetch(indices, training=True)
    for part in (slice(0, 1), slice(3, 70), slice(127, 128), slice(1, 128, 9)):
        for x, y in zip(split.fetch(indices[part], training=True), whole, strict=True):
            assert torch.equal(x, y[part])
