"""Training data without an end: a user's ``IterableDataset`` in its exact order, resumed exactly;
generated splits, no example of which occurs twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.compile import load
from experiments.engines import check_contract
from experiments.plan import Study, WorkloadRef
from experiments.training.batch_order import SequentialOrder
from experiments.training.streams import ExampleStream
from experiments.training.study_context import StudyContext
from tests.experiments.stream_workloads import ENDLESS, FILE
from tests.problems import TinyData, engine, largest_difference, restore, saved, study, trials
from workloads import WorkloadError

KINDS = ["module", "stacked"]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def ref(tmp_path: Path):
    (tmp_path / "streams.py").write_text(FILE)

    def of(data_set: str, **fields: Any) -> WorkloadRef:
        fields["data_set"] = data_set
        return WorkloadRef(spec="streams.py:Stream", base=str(tmp_path), fields=fields)

    return of


def stream_study(workload: WorkloadRef, **changes: Any) -> Study:
    given = {"precision": "float64", "batch_size": 8, "target": "validation_error < 0.01"}
    return study(**{"workload": workload, "budget_steps": 40, "keep": None, **given, **changes})


def read_count() -> list[int]:
    """The counter of the user's module."""
    modules = [m for m in sys.modules.values() if hasattr(m, "READ") and hasattr(m, "Stateful")]
    return modules[-1].READ


@pytest.mark.parametrize("name", ENDLESS)
def test_the_batch_of_a_step_is_the_next_part_of_the_stream(ref, name: str) -> None:
    context = StudyContext.load(stream_study(ref(name)))
    singles = context.train.order(5, 1)
    octets = context.train.order(5, 8)
    assert isinstance(singles, ExampleStream)
    assert isinstance(octets, ExampleStream)
    singly = [singles.batch(step)[0] for step in range(40)]
    for step in (0, 1, 4, 2, 2, 0):  # any order: what has been read is read again
        for whole, alone in zip(octets.batch(step), singly[8 * step : 8 * step + 8], strict=True):
            assert torch.equal(whole[0], alone[0])
    other = context.train.order(6, 8)
    assert isinstance(other, ExampleStream)
    same = all(torch.equal(a[0], b[0]) for a, b in zip(other.batch(0), singly[:8], strict=True))
    halves = [context.train.fetch_step(octets, part, 5, 3) for part in (slice(0, 3), slice(3, 8))]
    x = torch.cat([batch[0] for batch in halves])
    assert torch.equal(x, torch.stack([x for x, _ in singly[24:32]]).double())
    assert same == (name in ("Counted", "OfIterator"))  # without a seed, all trials read the same


def test_a_stream_with_a_length_is_read_in_epochs(ref) -> None:
    context = StudyContext.load(stream_study(ref("Sized")))
    order = context.train.order(5, 8)
    assert isinstance(order, ExampleStream)
    rows = TinyData.splits()["train"][0]
    for epoch in range(2):
        shuffled = torch.randperm(90, generator=torch.Generator().manual_seed(epoch))
        for step in range(11):  # the last two examples are dropped
            x = torch.stack([x for x, _ in order.batch(11 * epoch + step)])
            assert torch.equal(x, rows[shuffled[8 * step : 8 * step + 8]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["Sized", "Resumes"])
def test_a_trial_is_restored_where_a_pass_ends(ref, name: str, kind: str) -> None:
    of = stream_study(ref(name))
    rows = trials(of, 2)
    whole, stopped = engine(kind, of, rows), engine(kind, of, rows)
    whole.advance(30)
    for steps in (11, 1, 10, 3):  # a pass is 11 steps
        stopped.advance(steps)
        resumed = engine(kind, of, rows)
        restore(resumed, saved(stopped))
        stopped = resumed
    stopped.advance(5)
    assert largest_difference(stopped.weights(1), whole.weights(1)) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["Counted", "Stateful", "OfIterator", "Resumes"])
def test_a_restored_trial_reads_nothing_again(ref, name: str, kind: str) -> None:
    """But of a stream that keeps no position."""
    of = stream_study(ref(name))
    rows = trials(of, 3)
    stopped, resumed = engine(kind, of, rows), engine(kind, of, rows)
    stopped.advance(9)
    restore(resumed, saved(stopped))
    assert resumed.steps == [9, 9, 9]
    before = read_count()[0]
    resumed.advance(16)
    again = 9 if name == "Counted" else 0
    assert read_count()[0] - before == 3 * (16 + again) * 8


def test_stopped_trials_are_not_read_for(ref) -> None:
    of = stream_study(ref("Counted"))
    stack = engine("stacked", of, trials(of, 4), steps=1)
    stack.keep([0, 2, 3])
    stack.keep([0, 2])
    before = read_count()[0]
    stack.advance(5)
    assert read_count()[0] - before == 2 * 5 * 8


@pytest.mark.parametrize(
    ("examples", "length", "message", "hint"),
    [
        (100, None, "ended after 100 examples, in step 13 at batch size 8", "without end"),
        (50, 90, "has a length of 90 and ended after 50 examples", "__len__"),
    ],
)
def test_what_ends_early_is_an_error(ref, examples, length, message: str, hint: str) -> None:
    of = stream_study(ref("Ends", examples=examples, length=length))
    with pytest.raises(WorkloadError) as caught:
        engine("module", of, trials(of, 1)).advance(20)
    assert str(caught.value) == f"split 'train' of Stream {message}"
    assert hint in (caught.value.hint or "")


NAME = "split 'train' of Stream"
UNUSABLE = {
    "Unequal": (f"examples of {NAME} have unequal shapes: [(4,), ()] and [(6,), ()]", "pad"),
    "Bare": (f"an example of {NAME} is a Tensor", "(x, y)"),
    "Global": (f"{NAME} gives other examples when it is read again with the same seed", "set_seed"),
    "Forgets": (
        f"{NAME} continues with other examples after load_state_dict(state_dict())",
        "whole position",
    ),
    "Holds": (f"{NAME}: its state_dict() holds what cannot be saved: ", "numbers"),
    "Opened": (f"{NAME} cannot be copied, and each trial reads a copy of it: ", "__iter__"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_trained_on_is_named(ref, name: str) -> None:
    message, hint = UNUSABLE[name]
    of = stream_study(ref(name))
    with pytest.raises(WorkloadError) as caught:
        check_contract(StudyContext.load(of), trials(of, 1)[0])
    assert str(caught.value).startswith(message)
    assert hint in (caught.value.hint or "")


FILE_TEXT = "workload: streams.py:Stream\ngrid: {{batch_size: {}, optimizer: sgd}}\nbudget: {}\n"


def test_a_study_on_a_stream(ref, tmp_path: Path) -> None:
    ref("Counted")
    path = tmp_path / "my.yaml"
    path.write_text(FILE_TEXT.format("8..16", "20 steps + 800 examples"))
    studies = load(path).studies()
    assert [s.budget_steps for s in studies] == [120, 70]
    assert [s.train_examples for s in studies] == [None, None]
    text = FILE_TEXT.format("8..16", "2 epochs")
    path.write_text(text.replace("grid: {", "grid: {data_set: Sized, "))
    assert [plan.budget_steps for plan in load(path).studies()] == [22, 10]


NAMES = ["teacher", "markov"]
GENERATED = """
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


def generated(name: str) -> Study:
    ref = WorkloadRef(spec=name, fields={"width": 8})
    return stream_study(ref, target="validation_excess_loss < 1e-9")


@pytest.mark.parametrize("name", NAMES)
def test_no_example_occurs_twice(name: str) -> None:
    context = StudyContext.load(generated(name))
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
    split = StudyContext.load(generated(name)).train
    indices = SequentialOrder(3, 64).batches(5, 2).flatten()
    whole = split.fetch(indices, training=True)
    for part in (slice(0, 1), slice(3, 70), slice(127, 128), slice(1, 128, 9)):
        for x, y in zip(split.fetch(indices[part], training=True), whole, strict=True):
            assert torch.equal(x, y[part])
