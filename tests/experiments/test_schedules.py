"""Schedules against their formulas and against torch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments import schedules
from experiments.errors import ExperimentError


@given(length=st.integers(1, 500), end=st.floats(0, 1), step=st.integers(0, 1000))
def test_linear_is_the_papers(length: int, end: float, step: int) -> None:
    values = {"decay_steps": length, "end_factor": end}
    expected = 1 - (1 - end) * step / length if step <= length else end
    assert schedules.get("linear").factor(step, values) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("end", [0.0, 0.25])
def test_against_torch(end: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    for name, make in {
        "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, end, 40),
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 40, end),
    }.items():
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        theirs = make(optimizer)
        for step in range(40):
            ours = schedules.get(name).factor(step, {"decay_steps": 40, "end_factor": end})
            assert optimizer.param_groups[0]["lr"] == pytest.approx(ours, abs=1e-6)
            optimizer.step()
            theirs.step()


@pytest.mark.parametrize("name", schedules.names())
def test_warmup_rises_to_one_and_then_the_schedule_begins(name: str) -> None:
    schedule = schedules.get(name)
    plain = {"decay_steps": 10, "end_factor": 0.5}
    warm = {**plain, "warmup_steps": 4}
    assert [schedule.factor(s, warm) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    for step in range(20):
        assert schedule.factor(step + 4, warm) == schedule.factor(step, plain)
    assert not schedule.is_constant(warm)
    assert schedule.is_constant({}) == (name == "constant")


def test_shares_of_the_budget_become_steps() -> None:
    linear = schedules.get("linear")
    assert linear.resolve({"decay": 0.5, "end_factor": 0.1, "warmup": 0.001}, 101) == {
        "decay_steps": 50,
        "end_factor": 0.1,
        "warmup_steps": 1,
    }
    assert set(linear.space) <= linear.arguments
    with pytest.raises(ExperimentError, match="decay is a share of the budget, not 30"):
        linear.resolve({"decay": 30}, 100)
    with pytest.raises(ExperimentError, match="unknown schedule 'cosin'") as caught:
        schedules.get("cosin")
    assert caught.value.hint == "did you mean 'cosine'?"
