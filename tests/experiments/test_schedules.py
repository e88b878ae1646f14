"""Schedules against their formulas and against torch's own."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import schedules
from experiments.errors import ExperimentError
from tests.experiments.files import own


@given(length=st.integers(1, 500), end=st.floats(0, 1), step=st.integers(0, 1000))
def test_linear_is_the_papers(length: int, end: float, step: int) -> None:
    values = {"decay_steps": length, "end_factor": end}
    expected = 1 - (1 - end) * step / length if step <= length else end
    assert schedules.get("linear").factor(step, values) == pytest.approx(expected, abs=1e-12)


LENGTH = 40


def made(name: str, optimizer: torch.optim.Optimizer, end: float) -> Any:
    """torch's scheduler of the same definition."""
    known = torch.optim.lr_scheduler
    if name == "linear":
        return known.LinearLR(optimizer, 1.0, end, LENGTH)
    if name == "cosine":
        return known.CosineAnnealingLR(optimizer, LENGTH, end)
    if name == "exponential":
        return known.ExponentialLR(optimizer, end ** (1 / LENGTH))
    if name == "step":
        return known.StepLR(optimizer, LENGTH // 4, end)
    return known.ConstantLR(optimizer, 1.0)


@pytest.mark.parametrize("end", [0.03, 0.25])
@pytest.mark.parametrize("name", schedules.names())
def test_against_torch(name: str, end: float) -> None:
    values = {"decay_steps": LENGTH, "end_factor": end, "gamma": end, "drops": 4}
    expected = rates(lambda optimizer: made(name, optimizer, end), LENGTH)
    ours = [schedules.get(name).factor(step, values) for step in range(LENGTH)]
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-12)


def rates(make: Any, steps: int) -> list[float]:
    """The learning rates of a torch scheduler, from 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, seen = make(optimizer), []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 60), drops=st.integers(1, 9), gamma=st.floats(0, 1))
def test_drops_are_torchs_milestones(length: int, drops: int, gamma: float) -> None:
    """Also where the length is no multiple of them, or is shorter than they are many."""
    milestones = [math.ceil(drop * length / drops) for drop in range(1, drops + 1)]
    expected = rates(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, milestones, gamma), 70)
    values = {"decay_steps": length, "drops": drops, "gamma": gamma}
    ours = [schedules.get("step").factor(step, values) for step in range(70)]
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-300)


@st.composite
def legal_values(draw: st.DrawFn, schedule: schedules.Schedule) -> dict[str, float]:
    """Values of all of its arguments, as a trial has them; no factor's end above 1."""
    values: dict[str, float] = {"warmup_steps": draw(st.integers(0, 20))}
    for name in (*schedule.required, *schedule.defaults):
        domain = schedule.domains[name]
        if domain.whole or name.endswith("_steps"):
            values[name] = draw(st.integers(int(domain.low), 60))
        else:
            high = min(domain.high, 1.0)
            values[name] = draw(st.floats(domain.low, high, exclude_min=domain.above))
        assert values[name] in domain
    return values


@pytest.mark.parametrize("name", schedules.names())
@given(data=st.data())
def test_a_packaged_schedule_begins_at_one_and_never_rises(name: str, data: st.DataObject) -> None:
    schedule = schedules.get(name)
    values = data.draw(legal_values(schedule))
    warmup = int(values["warmup_steps"])
    factors = [schedule.factor(step, values) for step in range(warmup + 130)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    assert factors[warmup] == pytest.approx(1, abs=1e-12)
    pairs = itertools.pairwise(factors[warmup:])
    assert all(after <= before + 1e-12 for before, after in pairs)
    if schedule.is_constant(values):
        assert set(factors) == {1.0}


@pytest.mark.parametrize("name", schedules.names())
@given(data=st.data())
def test_factors_of_many_trials_are_those_of_each(name: str, data: st.DataObject) -> None:
    """To the last bit: a trial trains the same in a stack and alone."""
    schedule = schedules.get(name)
    rows = data.draw(st.lists(legal_values(schedule), min_size=1, max_size=4))
    steps = [data.draw(st.integers(0, 200)) for _ in rows]
    together = schedule.factors_of(rows)(steps)
    assert (together.dtype, together.shape) == (torch.float64, (len(rows), 1))
    alone = [schedule.factor(step, row) for step, row in zip(steps, rows, strict=True)]
    assert together.flatten().tolist() == alone


@pytest.mark.parametrize("name", schedules.names())
def test_a_packaged_schedule_says_what_its_arguments_may_be(name: str) -> None:
    schedule = schedules.get(name)
    assert schedule.label == schedule.name == name
    assert set(schedule.domains) == schedule.arguments
    assert set(schedule.space) <= schedule.arguments
    for argument in schedule.required:  # an experiment need not say any of it
        assert {argument, schedule.counterpart(argument)} & set(schedule.space)
    for argument, default in schedule.defaults.items():
        assert float(default) in schedule.domains[argument]


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


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("drops: 2.5", "drops: 2.5 is outside [1, 1000] in whole numbers"),
        ("drops: 0", "drops: 0 is outside [1, 1000] in whole numbers"),
        ("drops: {linear: [1, 4]}", "drops: linear draws fractions"),
        ("gamma: 1.5", "gamma: 1.5 is outside [0, 1]"),
        ("exponential: {end_factor: 0}", "end_factor: 0 is outside (0, 1]"),
        ("exponential: {end_factor: {linear: [0, 1]}}", "end_factor: 0.0 is outside (0, 1]"),
        ("decay: 3", "decay: 3 is outside [0, 1]"),
    ],
)
def test_values_are_checked_against_the_schedules_own_ranges(
    tmp_path: Path, search: str, message: str
) -> None:
    text = f"{SCHEDULED}  schedule: [step, exponential]\nsearch:\n  {search}\n"
    with pytest.raises(ExperimentError, match=re.escape(message)):
        own(tmp_path, text).plans()


def test_whole_numbers_are_tuned_as_such(tmp_path: Path) -> None:
    text = f"{SCHEDULED}  schedule: step\nsearch: {{drops: {{integer: [1, 4]}}}}\n"
    (plan,) = own(tmp_path, text).plans()
    assert {trial.metaparameters["drops"] for trial in plan.trials(0, 32)} == {1, 2, 3, 4}


def test_a_range_grows_towards_an_end_that_it_may_not_reach(tmp_path: Path) -> None:
    search = "search: {end_factor: {linear: [0.1, 0.5]}}"
    text = f"{SCHEDULED}  schedule: exponential\n{search}\n"
    (plan,) = own(tmp_path, text).plans()
    grown = plan.enlarged([("end_factor", "low"), ("end_factor", "high")])
    assert grown is not None
    low, high = grown.space["end_factor"].bounds
    assert 0 < low < 1e-6
    assert high == pytest.approx(0.9)


SCHEDULED = """\
workload: digits-softmax
budget: 100 steps
grid:
  batch_size: 64
  optimizer: sgd
"""
