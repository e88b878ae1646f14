"""What a captured step is made of: recordings, inputs, programs; and what the recorder refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.engines.capture import captured_step
from experiments.engines.capture.captured_step import Program, StepInputs
from experiments.engines.capture.rules import CaptureError
from tests.experiments.recorded_graph import RecordedGraph

pytestmark = pytest.mark.usefixtures("recorded")
CPU = torch.device("cpu")


def _captured(step: Any) -> Program:
    return Program(lambda inputs: step(), CPU, "a step", state=[], settings=[], steps=1)  # noqa: ARG005


def test_a_number_of_pythons_is_recorded_as_it_was() -> None:
    total, count = torch.zeros(1), [0]

    def step() -> None:
        count[0] += 1
        total.add_(count[0])

    _captured(step).run(8)
    assert total == 1 + 2 + 6 * 3  # and not 36: such a step is wrong on a GPU, and so here


def test_what_is_made_in_a_step_is_rubbish_after_it() -> None:
    x = torch.ones(3)
    kept: list[Tensor] = []

    def step() -> None:
        kept[:] = [x * 2]

    captured = _captured(step)
    captured.run(2)
    assert kept[0].tolist() == [2, 2, 2]
    captured.run(1)
    assert kept[0].isnan().all()


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


def test_after_a_recording_that_fails_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    later = _captured(lambda: None)
    assert not later.run(9)
    assert (later.refusal, later.taken) == ("an earlier recording failed", 0)


def test_inputs_are_read_step_by_step() -> None:
    read: list[Tensor] = []
    inputs = StepInputs(4, CPU)
    for first in (0, 10):
        inputs.fill({"a": torch.arange(first, first + 3), "b": torch.ones(3, 2) * first})
        for _ in range(3):
            read += [inputs["a"].clone(), inputs["b"].sum()]
            inputs.advance()
    assert [int(x) for x in read] == [0, 0, 1, 0, 2, 0, 10, 20, 11, 20, 12, 20]


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
