"""Generated splits: no example twice, the same ones in any layout, resumed exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.compile import load
from experiments.engines.base import gather
from experiments.plan import Pack, WorkloadRef
from experiments.training.batch_order import SequentialOrder
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests.problems import by_trial, engine, largest_difference, study, train, trials

KINDS = ["module", "stacked"]
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param("markov", "float32", marks=pytest.mark.slow),
        ("teacher", "float64"),
        pytest.param("teacher", "float32", marks=pytest.mark.slow),
        pytest.param("markov", "float64", marks=pytest.mark.slow),
    ],
)
def test_engines_and_micro_batches_agree(name: str, precision: str) -> None:
    of = generated_study(name, optimizer="momentum", precision=precision)
    rows = trials(of, 3)
    whole, stacked = engine("module", of, rows), engine("stacked", of, rows)
    parts = generated_study(name, optimizer="momentum", precision=precision, micro_batch=3)
    others = [stacked, engine("module", parts, rows), engine("stacked", parts, rows)]
    steps, tolerance = (200, 1e-8) if precision == "float64" else (20, 2e-3)
    for each in (whole, *others):
        each.advance(steps)
    for row in range(3):
        for other in others:
            assert largest_difference(whole.weights(row), other.weights(row)) < tolerance
    for a, b in zip(whole.evaluate("validation"), stacked.evaluate("validation"), strict=True):
        assert a["excess_loss"] == pytest.approx(b["excess_loss"], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_trial_is_the_same_bits_in_any_pack(name: str, kind: str) -> None:
    of = generated_study(name, precision="float32")
    rows = trials(of, 5)
    pack = engine(kind, of, rows)
    pack.advance(7)
    single = gather(pack.copy([2]))[0]
    pack.advance(9)
    alone = engine(kind, of, rows[2:3])
    alone.advance(16)
    assert largest_difference(pack.weights(2), alone.weights(0)) == 0
    pack.restore(2, single)
    pack.advance(9)
    assert largest_difference(pack.weights(2), alone.weights(0)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("markov", "module", marks=pytest.mark.slow),
        ("teacher", "stacked"),
        pytest.param("teacher", "module", marks=pytest.mark.slow),
        pytest.param("markov", "stacked", marks=pytest.mark.slow),
    ],
)
def test_snapshots_change_nothing(name: str, kind: Any) -> None:
    of = generated_study(name, optimizer="adam", evaluation_ratio=1.4)
    rows = trials(of, 3)
    training, events = Training(Pack(id="pack", study=of, trials=rows, engine=kind)), []
    while training.active:
        events += next(training.run(), [])
        if training.active:
            training = Training(training.pack, snapshot=training.snapshot())
    assert by_trial(events) == by_trial(train(of, rows, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_split_of_a_users_file_with_augmentation(tmp_path: Path, kind: str) -> None:
    (tmp_path / "parabola.py").write_text(OWN)
    (tmp_path / "my.yaml").write_text(
        "workload: parabola.py:Parabola\ngrid: {batch_size: 16, optimizer: sgd}\nbudget: 9 steps\n"
        "search: {learning_rate: {log: [0.01, 0.1]}}\ntechnique: none\nprecision: float64\n"
    )
    (plan,) = load(tmp_path / "my.yaml").plans()
    assert plan.study.train_examples is None
    rows = tuple(plan.trials(0, 2))
    trained, plain = engine(kind, plan.study, rows), engine("module", plan.study, rows)
    trained.advance(9)
    plain.advance(4)
    plain.advance(5)
    for row in range(2):
        assert largest_difference(trained.weights(row), plain.weights(row)) < 1e-9
