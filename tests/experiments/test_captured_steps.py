"""Captured steps: replayed on a CPU by ``RecordedGraph``, they are the eager steps bit for bit."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.batch_sizes import BatchSizes
from experiments.engines import stack
from experiments.engines.capture import captured_step
from experiments.precision import Precision
from tests.experiments.recorded_graph import RecordedGraph
from tests.marks import quick
from tests.problems import engine, restore, said, saved, study, train, trials

pytestmark = pytest.mark.usefixtures("one_thread", "recorded")
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


def _pack(of: Any, steps: int) -> list[Any]:
    """Trials that leave, join, go back to an earlier step, and go on from a snapshot."""
    some, late = trials(of, 4), trials(of, 1, seed=5)
    one = engine("stacked", of, some)
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
    other = engine("stacked", of, tuple(one.trials))
    restore(other, saved(one))
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
    ("digits-mlp", {"technique": {"label_smoothing": 0.3}, "precision": "float64"}),
    ("digits-mlp", {"precision": "bfloat16", "optimizer": "lamb"}),
    ("teacher", {"optimizer": "adam"}),
    ("digits-softmax", {"ramp": BatchSizes.growing(16, 400, [(30, 48)]), "optimizer": "adam"}),
]


@pytest.mark.parametrize(("workload", "changes"), quick(CASES, 1))
def test_replayed_steps_are_the_eager_ones(
    workload: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = study(**{"workload": workload, "batch_size": 16, **changes})
    replayed = _pack(of, 14)
    assert RecordedGraph.replays > 20
    eager(monkeypatch)
    assert _pack(of, 14) == replayed


@pytest.mark.slow
def test_over_hundreds_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    of = study(workload="digits-mlp", batch_size=16, optimizer="nesterov", schedule="cosine")
    replayed = _pack(of, 250)
    eager(monkeypatch)
    assert _pack(of, 250) == replayed


@pytest.mark.parametrize("optimizer", quick(["adamw", "sgd", "nesterov", "rmsprop", "muon"], 1))
def test_the_stack_on_its_own_memory_has_the_same_bits(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any of this: examples fetched for many steps at once, the stack itself trained."""
    of = study(workload="digits-mlp", batch_size=16, optimizer=optimizer, schedule="linear")
    replayed = _pack(of, 14)
    assert RecordedGraph.replays > 0
    monkeypatch.delitem(captured_step.RECORDERS, "cpu")
    assert _pack(of, 14) == replayed


def test_studies_of_one_shape_share_their_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
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
            one = engine("stacked", of, trials(of, 2, seed=n))
            one.advance(20)
            found.append(bits(one))
        return found

    train_all(3)
    assert RecordedGraph.made == 1
    replayed = train_all(0)
    assert RecordedGraph.made == 1
    eager(monkeypatch)
    assert train_all(0) == replayed


def test_a_pack_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations, domination, the target: all that the loop does between."""
    of = study(
        workload="digits-mlp", optimizer="momentum", budget_steps=150, keep=2,
        target="validation_error < 0.08", batch_size=64,
    )  # fmt: skip
    replayed = said(train(of, trials(of, 6), "stacked"))
    assert RecordedGraph.replays > 0
    assert len({ended.stop_reason for *_, ended in replayed.values()}) > 1  # their stop reasons
    eager(monkeypatch)
    assert said(train(of, trials(of, 6), "stacked")) == replayed


def test_a_trial_that_diverges_is_seen_at_its_evaluation() -> None:
    of = study(workload="digits-mlp", optimizer="momentum", batch_size=16)
    wild = trials(of, 1, seed=9, learning_rate=1e30)
    one = engine("stacked", of, (*trials(of, 2), *wild))
    one.advance(40)
    assert one.finite() == [True, True, False]


@pytest.mark.parametrize("kind", ["module", "stacked"])
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
