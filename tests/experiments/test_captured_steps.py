"""Captured steps: on a CPU ``RecordedGraph`` replays the eager ones bit for bit; their parts."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.batch_sizes import BatchSizes
from experiments.engines import stack
from experiments.engines.capture import captured_step
from experiments.engines.capture.captured_step import Program, StepInputs
from experiments.engines.capture.rules import CaptureError
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
            one = engine("stacked", of, trials(of, 2, seed=n), steps=20)
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


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda x: x.sum().item(), "reads a number"),
        (lambda x: bool((x > 0).all()), "reads a number"),
        (lambda x: x.nonzero(), "has a shape that depends on numbers"),
        (lambda x: x[x > 0], "has a shape that depends on numbers"),
        (lambda x: x.index_put_((x > 0,), x.sum()), "with a mask"),
        (lambda x: x.add_(torch.tensor(3.0)), "of Python's numbers"),
        (lambda x: x.uniform_(), "random numbers"),
    ],
)
def test_the_recorder_refuses_what_a_gpu_does(work: Any, reason: str) -> None:
    x = torch.ones(3)
    graph = RecordedGraph(CPU)

    def both() -> None:
        x.add_(1)
        work(x)

    with pytest.raises(CaptureError, match=reason):
        graph.record(both)
    assert x.tolist() == [1, 1, 1]  # nothing was executed


def test_after_a_recording_that_fails_there_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first error is named, not what follows from it; and no step is lost or taken twice."""

    class Failing(RecordedGraph):
        def record(self, work: Any) -> None:
            del work
            try:
                raise RuntimeError("the first error\nand more of it")
            finally:
                raise RuntimeError("the recording is invalid")

    monkeypatch.setitem(captured_step.RECORDERS, "cpu", Failing)
    total = torch.zeros(1)

    def step(inputs: StepInputs) -> None:
        total.add_(inputs["x"])

    program = Program(step, CPU, "this model", state=[total], settings=[], steps=8)
    mine, inputs = torch.full((1,), 5.0), [(6, {"x": torch.arange(6.0)})]
    with pytest.warns(UserWarning, match="^this model is trained without .*: the first error$"):
        assert not program.advance([mine], [], inputs)
    assert mine == 5
    later = Program(lambda _: None, CPU, "a step", state=[], settings=[], steps=1)
    assert not later.run(9)
    assert (later.refusal, later.taken) == ("an earlier recording failed", 0)


def test_programs_are_dropped_from_the_oldest_and_after_exhausted_memory() -> None:
    def make(fails: bool = False) -> Program:
        total = torch.zeros(1)

        def step(inputs: StepInputs) -> None:
            if fails:
                raise torch.OutOfMemoryError("no memory")
            total.add_(inputs["x"])

        return Program(step, CPU, "a step", state=[total], settings=[], steps=8)

    for n in range(captured_step._PROGRAMS + 3):
        captured_step.program(n, make)
    assert list(captured_step._programs) == list(range(3, captured_step._PROGRAMS + 3))
    mine = torch.full((1,), 5.0)
    inputs = [(6, {"x": torch.arange(6.0)})]
    captured_step.program(3, make).advance([mine], [], inputs)
    assert mine == 5 + 15
    assert list(captured_step._programs)[-1] == 3
    with pytest.raises(torch.OutOfMemoryError):
        captured_step.program("fails", lambda: make(True)).advance([mine], [], inputs)
    assert not captured_step._programs
