"""Captured steps: replayed on a CPU by ``RecordedGraph``, they are the eager steps bit for bit."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments import optimizers
from experiments.batch_sizes import BatchSizes
from experiments.engines import stack
from experiments.engines.capture import captured_step, module_program
from experiments.engines.capture.flat_optimizer import FlatOptimizer
from experiments.engines.module import ModuleEngine
from experiments.plan import WorkloadRef
from experiments.precision import Precision
from tests.experiments.recorded_graph import RecordedGraph
from tests.experiments.test_cohorts import told
from tests.marks import quick
from tests.problems import engine, largest_difference, study, train, trials

pytestmark = pytest.mark.usefixtures("one_thread", "recorded")
KINDS = ["module", "stacked"]
CPU = torch.device("cpu")


def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the same steps on the same memory, without a recording."""
    captured_step.forget()
    monkeypatch.setattr(captured_step, "_WARM_UP", 10**9)


def bits(one: Any) -> dict[str, list[bytes]]:
    return {
        trial.id: [x.numpy().tobytes() for x in one.weights(row).values()]
        for row, trial in enumerate(one.trials)
    }


def _pack(kind: str, of: Any, steps: int) -> list[Any]:
    """Trials that leave, join, go back to an earlier step, and go on from a snapshot."""
    some, late = trials(of, 4), trials(of, 1, seed=5)
    one = engine(kind, of, some)
    found: list[Any] = []
    for count in (1, 1, 2, 3, steps):
        one.advance(count)
    found.append((bits(one), one.finite(), one.evaluate("validation")))
    held = one.copy([1])
    one.advance(6)
    one.restore(1, held[0])
    one.keep([0, 1])
    one.advance(steps)
    found.append(bits(one))
    one.add(late)
    one.advance(steps)
    other = engine(kind, of, tuple(one.trials))
    other.load(one.state())
    for each in (one, other):
        each.advance(steps)
        found.append(bits(each))
    assert found[-1] == found[-2]
    return found


CASES: list[tuple[str, dict[str, Any]]] = [
    ("digits-mlp", {"optimizer": "nesterov", "schedule": "cosine"}),
    ("digits-mlp", {"optimizer": "adamw", "micro_batch": 12}),
    ("digits-mlp", {"optimizer": "muon"}),
    ("digits-mlp", {"optimizer": "momentum", "technique": {"dropout": 0.2}}),
    ("digits-mlp", {"technique": {"mixup": 0.3}, "precision": "float64"}),
    ("digits-mlp", {"precision": "bfloat16", "optimizer": "lamb"}),
    ("teacher", {"optimizer": "adam"}),
    ("digits-softmax", {"ramp": BatchSizes.growing(16, 400, [(30, 48)]), "optimizer": "adam"}),
]


@pytest.mark.parametrize(
    ("kind", "workload", "changes"),
    [
        pytest.param(kind, *case, marks=[] if case is CASES[0] else pytest.mark.slow)
        for kind in KINDS
        for case in CASES
    ],
)
def test_replayed_steps_are_the_eager_ones(
    kind: str, workload: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = study(**{"workload": workload, "batch_size": 16, **changes})
    replayed = _pack(kind, of, 14)
    assert RecordedGraph.replays > 20
    eager(monkeypatch)
    assert _pack(kind, of, 14) == replayed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_over_hundreds_of_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = study(workload="digits-mlp", batch_size=16, optimizer="nesterov", schedule="cosine")
    replayed = _pack(kind, of, 250)
    eager(monkeypatch)
    assert _pack(kind, of, 250) == replayed


@pytest.mark.parametrize("optimizer", quick(["adamw", "sgd", "nesterov", "rmsprop", "muon"], 1))
def test_the_stack_on_its_own_memory_has_the_same_bits(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any of this: examples fetched for many steps at once, the stack itself trained."""
    of = study(workload="digits-mlp", batch_size=16, optimizer=optimizer, schedule="linear")
    replayed = _pack("stacked", of, 14)
    assert RecordedGraph.replays > 0
    monkeypatch.delitem(captured_step.RECORDERS, "cpu")
    assert _pack("stacked", of, 14) == replayed


@pytest.mark.parametrize("optimizer", quick(reversed(optimizers.names()), 2))
def test_a_flat_optimizer_is_torchs(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding: the fused form updates one model, captured, as torch's or a library's does."""
    of = study(
        workload="digits-mlp", batch_size=16, optimizer=optimizer, schedule="linear",
        precision="float64",
    )  # fmt: skip
    some = trials(of, 2)
    flat = engine("module", of, some)
    flat.advance(15)
    monkeypatch.delitem(captured_step.RECORDERS, "cpu")
    plain = engine("module", of, some)
    plain.advance(15)
    assert isinstance(flat, ModuleEngine)
    kind = optimizers.get(optimizer)
    has_form = kind.stacks and not kind.averages
    assert isinstance(flat.runs[0].optimizer, FlatOptimizer) == has_form
    assert (RecordedGraph.replays > 0) == has_form
    for row in range(2):
        assert largest_difference(flat.weights(row), plain.weights(row)) < 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_studies_of_one_shape_share_their_recordings(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[dict[str, Any]] = [
        {},
        {"budget_steps": 900},
        {"schedule": "cosine"},
        {"target": "validation_error < 1"},
    ]
    studies = [
        study(id=f"study {n}", workload="digits-mlp", batch_size=16, optimizer="nesterov", **more)
        for n, more in enumerate(others)
    ]

    def train_all(first: int) -> list[Any]:
        found = []
        for n, of in enumerate(studies[first:]):
            one = engine(kind, of, trials(of, 2, seed=n))
            one.advance(20)
            found.append(bits(one))
        return found

    train_all(3)
    assert RecordedGraph.made == 2  # of one step, and of many
    replayed = train_all(0)
    assert RecordedGraph.made == 2
    eager(monkeypatch)
    assert train_all(0) == replayed


@pytest.mark.parametrize("kind", quick(["stacked", "module"], 1))
def test_a_pack_tells_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations, refined brackets, domination, the target: all that the loop does between."""
    of = study(
        workload="digits-mlp", optimizer="momentum", budget_steps=150, refine=1.01, keep=2,
        target="validation_error < 0.08", batch_size=64,
    )  # fmt: skip
    replayed = told(train(of, trials(of, 6), kind))
    assert RecordedGraph.replays > 0
    assert len({ended[1] for *_, ended in replayed.values()}) > 1  # their stop reasons
    eager(monkeypatch)
    assert told(train(of, trials(of, 6), kind)) == replayed


def test_a_trial_that_diverges_is_seen_at_its_evaluation() -> None:
    of = study(workload="digits-mlp", optimizer="momentum", batch_size=16)
    wild = trials(of, 1, seed=9, learning_rate=1e30)
    for kind in KINDS:
        one = engine(kind, of, (*trials(of, 2), *wild))
        one.advance(40)
        assert one.finite() == [True, True, False]


def test_channels_stay_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODELS)
    of = study(
        workload=WorkloadRef(spec="own.py:Images", base=str(tmp_path)),
        optimizer="nesterov", batch_size=32, technique={"channels_last": True},
    )  # fmt: skip
    one = engine("module", of, trials(of, 2))
    assert isinstance(one, ModuleEngine)
    one.advance(12)
    weight = next(p for p in one.runs[0].model.parameters() if p.dim() == 4)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert weight.data_ptr() == one.runs[0].optimizer.stack.weights.data_ptr()  # type: ignore
    assert RecordedGraph.replays > 0
    replayed = bits(one)
    eager(monkeypatch)
    two = engine("module", of, trials(of, 2))
    two.advance(12)
    assert bits(two) == replayed


MODELS = """
import torch
from torch import nn
from batchscale import Classification
from workloads import load

class Images(Classification):
    target = "validation_error < 0.1"

    def data(self):
        return load("digits-mlp").data()

    def transform(self, batch, *, training):
        return batch[0].view(-1, 1, 8, 8).repeat(1, 3, 1, 1), *batch[1:]

    def model(self):
        return Net()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(256, 10)

    def forward(self, x):
        return self.out(self.norm(self.conv(x)).relu().flatten(1))

class Reads(Images):
    def model(self):
        return Reading()

class Reading(Net):
    def forward(self, x):
        y = super().forward(x)
        return y * 0.5 if float(y.detach().sum()) > 0 else y

class Counts(Images):
    def model(self):
        return Counting()

class Counting(Net):
    calls = 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            self.calls = self.calls + 1
        return super().forward(x) * (1 + self.calls % 3)

class Makes(Images):
    def model(self):
        return Making()

class Making(Net):
    def forward(self, x):
        return super().forward(x) * torch.tensor([0.5] * 10, device=x.device)

class Holds(Images):
    def model(self):
        return Holding()

class Holding(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.rand(10)

    def forward(self, x):
        return super().forward(x) * self.scale

class Draws(Images):
    def model(self):
        return Drawing()

class Drawing(Net):
    def forward(self, x):
        return super().forward(x) + torch.rand(x.shape[0] ** 2).mean()
"""


def test_batch_norm_is_captured_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODELS)
    ref = WorkloadRef(spec="own.py:Images", base=str(tmp_path))
    of = study(workload=ref, batch_size=32, optimizer="adam", technique={"ghost_batch": 16})
    replayed = _pack("module", of, 5)
    assert RecordedGraph.replays > 20
    eager(monkeypatch)
    assert _pack("module", of, 5) == replayed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Reads", "_local_scalar_dense reads a number"),
        ("Makes", "makes a tensor of Python's numbers"),
        ("Counts", "its modules change numbers of their own"),
    ],
)
def test_what_cannot_be_captured_is_trained_without(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(MODELS)
    ref = WorkloadRef(spec=f"own.py:{name}", base=str(tmp_path))
    of = study(workload=ref, batch_size=32, optimizer="momentum")
    one = engine("module", of, trials(of, 2))
    with pytest.warns(UserWarning, match=f"without CUDA graphs, which is slower: .*{reason}"):
        one.advance(20)
    one.advance(20)  # and says so once
    assert RecordedGraph.made == 0
    # Nothing is left of the steps that were tried: a model's own numbers too are as without.
    monkeypatch.setattr(module_program, "_program_of", lambda *_: None)
    two = engine("module", of, trials(of, 2))
    two.advance(40)
    assert bits(two) == bits(one)


def test_random_numbers_of_no_example_are_left_to_eager_steps(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODELS)
    ref = WorkloadRef(spec="own.py:Draws", base=str(tmp_path))
    of = study(workload=ref, batch_size=32)
    engine("module", of, trials(of, 2)).advance(10)
    assert not captured_step._programs


@pytest.mark.parametrize(
    ("model", "is_flat"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), False),
        (nn.LSTM(2, 2), False),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), True),
    ],
)
def test_which_models_lie_flat(model: nn.Module, is_flat: bool) -> None:
    of = study(workload="digits-mlp")
    context = engine("module", of, trials(of, 1)).context
    optimizer = FlatOptimizer.of(context, trials(of, 1)[0], model)
    assert (optimizer is not None) == is_flat


def test_tensors_that_a_recording_would_not_copy_rule_it_out(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODELS)
    ref = WorkloadRef(spec="own.py:Holds", base=str(tmp_path))
    of = study(workload=ref, batch_size=32)
    one = engine("module", of, trials(of, 2))
    one.advance(8)
    assert isinstance(one, ModuleEngine)
    assert not isinstance(one.runs[0].optimizer, FlatOptimizer)
    assert RecordedGraph.made == 0


@pytest.mark.parametrize("kind", KINDS)
def test_tf32_is_that_of_training_and_evaluation(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both engines; the flags are read where the model is."""
    of = study(workload="digits-mlp", batch_size=16)
    one = engine(kind, of, trials(of, 2))
    one.context = replace(one.context, precision=Precision(name="tf32", device=CPU))
    flags: set[bool] = set()
    forward = type(one.context.workload).forward

    def spying(self: Any, model: Any, batch: Any) -> Any:
        flags.add(torch.backends.cuda.matmul.allow_tf32)
        return forward(self, model, batch)

    monkeypatch.setattr(type(one.context.workload), "forward", spying)
    monkeypatch.setattr(stack, "_traces", OrderedDict())
    one.advance(1)
    one.evaluate("validation")
    assert flags == {True}
    assert not torch.backends.cuda.matmul.allow_tf32
