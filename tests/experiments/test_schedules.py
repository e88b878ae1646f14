"""Schedules against their formulas and against torch's own."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import schedules
from experiments.enlarged import enlarge
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
    if name == "polynomial":  # torch's ends at 0
        return known.PolynomialLR(optimizer, LENGTH, 1 + 4 * end)
    if name == "one-cycle":
        return known.OneCycleLR(
            optimizer, 1.0, LENGTH, pct_start=end + 0.1, cycle_momentum=False,
            div_factor=1 / end, final_div_factor=50,
        )  # fmt: skip
    if name == "cyclical":
        return known.CyclicLR(
            optimizer, end, 1.0, CYCLE // 2, cycle_momentum=False,
            mode="triangular" if end < 0.1 else "triangular2",
        )  # fmt: skip
    if name == "sgdr":
        growth = 1 if end < 0.1 else 3
        return known.CosineAnnealingWarmRestarts(optimizer, CYCLE, growth, end)
    assert name == "constant"
    return known.ConstantLR(optimizer, 1.0)


CYCLE = 10
WITHOUT_TORCH = ("inverse-sqrt", "wsd")
"""Compared with their formulas alone."""


@pytest.mark.parametrize("end", [0.03, 0.25])
@pytest.mark.parametrize("name", [n for n in schedules.names() if n not in WITHOUT_TORCH])
def test_against_torch(name: str, end: float) -> None:
    values = {
        "decay_steps": LENGTH, "end_factor": end, "gamma": end, "drops": 4,
        "cycle_steps": CYCLE, "base_factor": end, "cycle_growth": 1 if end < 0.1 else 3,
    }  # fmt: skip
    if name == "polynomial":
        values |= {"end_factor": 0.0, "power": 1 + 4 * end}
    if name == "one-cycle":
        values |= {"cycle_steps": LENGTH, "pct_start": end + 0.1}
        values |= {"div_factor": 1 / end, "final_div_factor": 50}
    if name == "cyclical":
        values |= {"gamma": 1 if end < 0.1 else 0.5}
    expected = rates(lambda optimizer: made(name, optimizer, end), LENGTH)
    ours = [schedules.get(name).factor(step, values) for step in range(LENGTH)]
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(scale=st.integers(1, 300), step=st.integers(0, 3000))
def test_inverse_sqrt_after_as_long_a_warmup_is_the_transformers(scale: int, step: int) -> None:
    """Vaswani et al. 2017, equation 3, over its largest value; the decay begins a step later."""

    def transformers(number: int) -> float:
        return min(number**-0.5, number * scale**-1.5) * scale**0.5

    values = {"decay_steps": scale, "warmup_steps": scale}
    factor = schedules.get("inverse-sqrt").factor(step, values)
    number = step + 1 if step < scale else step
    assert factor == pytest.approx(transformers(number), rel=1e-12)


@given(
    stable=st.integers(1, 200), length=st.integers(1, 200),
    end=st.floats(0, 1), step=st.integers(0, 500),
)  # fmt: skip
def test_wsd_is_constant_and_then_linear(stable: int, length: int, end: float, step: int) -> None:
    """Hu et al. 2024, with the linear decay: the parts by themselves."""
    values = {"stable_steps": stable, "decay_steps": length, "end_factor": end}
    factor = schedules.get("wsd").factor(step, values)
    if step < stable:
        assert factor == 1
    else:
        linear = schedules.get("linear").factor(step - stable, values)
        assert factor == pytest.approx(linear, abs=1e-12)


@given(length=st.integers(1, 60), share=st.floats(0, 1), step=st.integers(0, 200))
def test_one_cycle_has_a_factor_at_any_length(length: int, share: float, step: int) -> None:
    """torch divides by zero where a phase has no step."""
    values = {"cycle_steps": length, "pct_start": share}
    factor = schedules.get("one-cycle").factor(step, values)
    assert 1 / 25e4 * (1 - 1e-9) <= factor <= 1
    if step >= length > 1 and share < 1 - 1 / length:
        assert factor == pytest.approx(1 / 25e4)


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
            high = min(domain.high, max(domain.low + 1, 1.0))
            values[name] = draw(st.floats(domain.low, high, exclude_min=domain.above))
        assert values[name] in domain
    return values


RISING = ("one-cycle", "cyclical", "sgdr")
"""Schedules whose factor rises again."""
NOT_FROM_ONE = ("one-cycle", "cyclical")


@pytest.mark.parametrize("name", schedules.names())
@given(data=st.data())
def test_the_learning_rate_is_the_largest_of_a_packaged_schedule(
    name: str, data: st.DataObject
) -> None:
    """The others begin at it, and never rise."""
    schedule = schedules.get(name)
    values = data.draw(legal_values(schedule))
    warmup = int(values["warmup_steps"])
    factors = [schedule.factor(step, values) for step in range(warmup + 130)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    if name not in NOT_FROM_ONE:
        assert factors[warmup] == pytest.approx(1, abs=1e-12)
    if name not in RISING:
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
        assert {argument, *schedule.other_forms(argument)} & set(schedule.space)
    for argument, default in schedule.defaults.items():
        assert float(default) in schedule.domains[argument]


@pytest.mark.parametrize("name", schedules.names())
def test_warmup_rises_to_one_and_then_the_schedule_begins(name: str) -> None:
    schedule = schedules.get(name)
    plain = {"decay_steps": 10, "end_factor": 0.5, "cycle_steps": 8, "stable_steps": 5}
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
    with pytest.raises(ExperimentError, match="decay is a share of the budget, not 30"):
        linear.resolve({"decay": 30}, 100)


def test_a_warmup_of_nothing_is_none() -> None:
    resolved = schedules.get("linear").resolve({"decay": 0.0, "warmup": 0.0}, 100)
    assert resolved == {"decay_steps": 1, "warmup_steps": 0}


@pytest.mark.parametrize("name", schedules.names())
def test_a_decay_that_ends_with_the_budget_does_so_after_a_warmup_too(name: str) -> None:
    schedule = schedules.get(name)
    if not schedule.decays_after_warmup:
        assert name not in ("cosine", "linear", "polynomial", "exponential")
        return
    for warmup in ({"warmup": 0.25}, {}):
        values = {"end_factor": 0.125, **schedule.resolve({"decay": 1, **warmup}, 60)}
        assert schedule.factor(60, values) == pytest.approx(0.125)
        assert schedule.factor(59, values) > 0.125 * 1.0001
    assert schedule.resolve({"decay": 0.5, "warmup_steps": 20}, 60)["decay_steps"] == 20
    assert schedule.resolve({"decay": 1, "warmup_steps": 70}, 60)["decay_steps"] == 1


def test_lengths_of_several_phases_are_shares_of_the_whole_budget() -> None:
    values = {"warmup": 0.05, "stable": 0.85, "decay": 0.1}
    resolved = schedules.get("wsd").resolve(values, 200)
    assert resolved == {"warmup_steps": 10, "stable_steps": 170, "decay_steps": 20}


def test_examples_and_tokens_become_steps_of_the_batch_size() -> None:
    linear = schedules.get("linear")
    values = {"decay_examples": 6_400, "warmup_tokens": 51_200}
    assert linear.resolve(values, 101, 64, 16) == {"decay_steps": 100, "warmup_steps": 50}
    assert linear.resolve({"decay_examples": 3, "warmup_examples": 0}, 9, 64) == {
        "decay_steps": 1,  # at least one
        "warmup_steps": 0,
    }
    assert linear.other_forms("decay_tokens") == ("decay", "decay_steps", "decay_examples")
    assert linear.other_forms("end_factor") == ()
    with pytest.raises(ExperimentError, match="the workload has no tokens_per_example") as caught:
        linear.resolve({"decay_tokens": 1e6}, 100, 64)
    hint = "set it on the class: tokens_per_example = 64; or use decay_examples"
    assert caught.value.hint == hint


def test_a_length_in_examples_is_the_same_at_every_batch_size(tmp_path: Path) -> None:
    """Trials hold it in steps, and so does the recorded space, whose edges are checked."""
    text = f"{SCHEDULED}  schedule: linear\nsearch: {{decay_examples: {{log: [640, 6400]}}}}\n"
    text = text.replace("batch_size: 64", "batch_size: [16, 64]")
    for study in own(tmp_path, text).studies():
        size = study.batch_size
        lengths = [int(trial.metaparameters["decay_steps"]) for trial in study.draw(0, 16)]
        assert 640 / size - 1 <= min(lengths) < max(lengths) <= 6400 / size + 1
        assert study.notation()["decay_steps"] == {"log": [640 / size, 6400 / size]}
        assert not {"decay", "decay_examples"} & {*study.notation(), *study.trial(0).metaparameters}
        grown = enlarge(study, study.search.space, [("decay_steps", "high")])
        assert grown is not None
        assert study.notation(grown.space)["decay_steps"] == {"log": [640 / size, 64000 / size]}
        longest = max(int(trial.metaparameters["decay_steps"]) for trial in grown.trials)
        assert 6400 / size < longest <= 64000 / size


def test_a_length_in_steps_or_examples_that_is_the_same_is_the_same_trial(tmp_path: Path) -> None:
    ids = []
    for length in ("decay_steps: 50", "decay_examples: 3200", "decay: 0.5"):
        text = f"{SCHEDULED}  schedule: linear\nsearch: {{{length}}}\n"
        (study,) = own(tmp_path, text).studies()
        ids.append([trial.id for trial in study.draw(0, 4)])
    assert ids[0] == ids[1] == ids[2]


def test_a_range_grows_towards_an_end_that_it_may_not_reach(tmp_path: Path) -> None:
    search = "search: {end_factor: {linear: [0.1, 0.5]}}"
    text = f"{SCHEDULED}  schedule: exponential\n{search}\n"
    (study,) = own(tmp_path, text).studies()
    grown = enlarge(study, study.search.space, [("end_factor", "low"), ("end_factor", "high")])
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
