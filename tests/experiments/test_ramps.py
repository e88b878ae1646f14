"""Batch sizes that grow: steps, the order of examples, the learning rate, what a file says."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments import schedules
from experiments.batch_sizes import BatchSizes
from experiments.factors.ramp import Ramp, RampedSchedule
from experiments.plan import Study
from experiments.training.batch_order import BatchOrder
from tests.experiments.files import own
from tests.problems import (
    engine,
    largest_difference,
    measurements,
    outcomes,
    study,
    tensors,
    train,
    trials,
)


@st.composite
def growing(draw: st.DrawFn) -> BatchSizes:
    size, budget = draw(st.integers(1, 12)), draw(st.integers(1, 60))
    places = sorted(draw(st.sets(st.integers(1, 70), max_size=4)))
    sizes = list(itertools.accumulate(draw(st.integers(0, 9)) for _ in places))
    return BatchSizes.growing(
        size, budget, [(at, size + more) for at, more in zip(places, sizes, strict=True)]
    )


@given(sizes=growing(), steps=st.integers(0, 90))
def test_examples_are_the_sum_of_the_steps(sizes: BatchSizes, steps: int) -> None:
    each = [sizes.size(step) for step in range(steps)]
    assert sizes.examples(steps) == sum(each)
    assert each == sorted(each)
    assert steps == 0 or sizes.mean_size(steps) == pytest.approx(sum(each) / steps)
    assert sizes.schedule_step(steps) == pytest.approx(sum(each) / sizes.batch_size)
    pieces = sizes.pieces(3, steps) if steps else []
    assert [step for piece in pieces for step in piece] == [*range(3, 3 + steps)]
    assert all(len({sizes.size(step) for step in piece}) == 1 for piece in pieces)


@given(sizes=growing())
def test_the_budget_is_so_many_examples(sizes: BatchSizes) -> None:
    """As many steps as fit in; at least one."""
    assert sizes.budget_steps is not None
    assert sizes.schedule_steps is not None
    wanted, seen = sizes.schedule_steps * sizes.batch_size, sizes.examples(sizes.budget_steps)
    assert seen <= wanted or sizes.budget_steps == 1
    assert wanted - seen < max(sizes.largest, 1) + 9 + sizes.largest


def test_a_size_changes_after_the_step_that_completes_its_share() -> None:
    sizes = BatchSizes.growing(10, 100, [(25, 20), (50, 30)])
    assert (sizes.starts, sizes.sizes) == ((0, 25, 38), (10, 20, 30))
    assert sizes.examples(38) == 250 + 13 * 20  # the 13th step passes 500
    assert sizes.budget_steps == 38 + (1000 - 510) // 30
    assert [sizes.size(step) for step in (0, 24, 25, 37, 38, 99)] == [10, 10, 20, 20, 30, 30]
    assert sizes.steps_to_change(30) == 8
    assert sizes.steps_to_change(40) is None


@given(sizes=growing(), examples=st.integers(60, 130), seed=st.integers(0, 2**62))
def test_an_epoch_has_no_example_twice(sizes: BatchSizes, examples: int, seed: int) -> None:
    """Whatever the sizes; the order at any step needs no state."""
    order, drops = BatchOrder(seed, examples, sizes), 0
    seen: list[int] = []
    for step in range(80):
        (batch,) = order.batches(step, 1)
        assert torch.equal(batch, BatchOrder(seed, examples, sizes).batches(step, 1)[0])
        assert len(batch) == sizes.size(step)
        if len(seen) + len(batch) > examples:  # the short batch at the end is dropped
            seen, drops = [], drops + 1
        seen += batch.tolist()
        assert len(set(seen)) == len(seen)
    for piece in sizes.pieces(0, 80):
        whole = order.batches(piece.start, len(piece))
        assert torch.equal(whole, torch.cat([order.batches(step, 1) for step in piece]))
    assert drops >= sizes.examples(80) // examples - 1


@given(
    size=st.integers(1, 40), examples=st.integers(40, 99),
    changes=st.sets(st.integers(1, 60), max_size=4), step=st.integers(0, 200),
)  # fmt: skip
def test_the_order_of_a_constant_size_is_the_plain_one(
    size: int, examples: int, changes: set[int], step: int
) -> None:
    sizes = BatchSizes.growing(size, 100, [(at, size) for at in sorted(changes)])
    plain = BatchOrder(5, examples, size).batches(step, 1)
    assert torch.equal(BatchOrder(5, examples, sizes).batches(step, 1), plain)


def of_sizes(sizes: BatchSizes, **changes: Any) -> Study:
    """A study at these batch sizes."""
    return study(
        batch_size=sizes.batch_size,
        ramp=sizes,
        budget_steps=sizes.budget_steps,
        **{"precision": "float64", **changes},
    )


GROWING = BatchSizes.growing(16, 120, [(30, 40), (66, 96)])


def test_a_ramp_against_a_plain_loop() -> None:
    """torch's SGD on the slices of the order; the rate decays in examples."""
    of = of_sizes(GROWING, schedule="linear")
    (trial,) = trials(of, 1, learning_rate=0.3, weight_decay=0.0, decay_steps=90, warmup_steps=0)
    trained = engine("module", of, (trial,))
    model = trained.context.model(trial)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    x, y = tensors(trained.context.workload.data()["train"])
    order, seen = BatchOrder(trial.seed, len(x), GROWING), 0
    for step in range(60):
        (batch,) = order.batches(step, 1)
        optimizer.param_groups[0]["lr"] = 0.3 * (1 - 0.9 * min(seen / 16 / 90, 1))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch].double()), y[batch])
        loss.backward()
        optimizer.step()
        seen += len(batch)
    trained.advance(60)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    assert largest_difference(trained.weights(0), weights) < 1e-9


def test_what_is_recorded_counts_the_examples_that_were_seen() -> None:
    of = of_sizes(GROWING, optimizer="momentum", schedule="cosine")
    events = train(of, trials(of, 2, learning_rate=0.01))
    assert all(m.examples == GROWING.examples(m.step) for m in measurements(events))
    assert GROWING.budget_steps is not None
    for outcome in outcomes(events).values():
        assert outcome.steps_run == GROWING.budget_steps
        assert outcome.examples_run == GROWING.examples(GROWING.budget_steps) <= 120 * 16


@given(
    name=st.sampled_from([n for n in schedules.names() if n not in ("constant",)]),
    sizes=growing(), step=st.integers(0, 90), warmup=st.integers(0, 20),
)  # fmt: skip
def test_the_schedule_runs_in_examples(
    name: str, sizes: BatchSizes, step: int, warmup: int
) -> None:
    """After as many examples the factor is that of the study without the ramp, or between those of
    the steps before and after."""
    schedule, lengths = schedules.get(name), ("decay_steps", "cycle_steps", "stable_steps")
    values = {**dict.fromkeys(lengths, 40), "warmup_steps": warmup}
    factor = RampedSchedule(schedule, sizes).factor(step, values)
    seen, at = sizes.examples(step), sizes.examples(step) // sizes.batch_size
    near = [schedule.factor(at, values), schedule.factor(at + 1, values)]
    if seen % sizes.batch_size == 0:
        assert factor == near[0]
    elif name not in ("step", "sgdr", "cyclical", "one-cycle"):  # these jump, or turn
        assert min(near) - 1e-9 <= factor <= max(near) + 1e-9
    assert 0 <= factor <= 1


@pytest.mark.parametrize(("rule", "factors"), [("sqrt", [1, 2, 4]), ("linear", [1, 4, 16])])
def test_the_rate_grows_with_the_batch_by_a_rule(rule: str, factors: list[float]) -> None:
    """Whatever the schedule's own factor, in both engines alike."""
    sizes = Ramp.parse({"at": [[0.25, 4], [0.5, 16]], "learning_rate": rule}).resolve(  # type: ignore[union-attr]
        10, 200, examples=10**6, schedule=schedules.get("linear"), arguments={}, tuned=()
    )
    schedule = RampedSchedule(schedules.get("linear"), sizes)
    plain, values = schedules.get("linear"), {"decay_steps": 150}
    for start, factor in zip(sizes.starts, factors, strict=True):
        at = sizes.examples(start) // 10
        assert schedule.factor(start, values) == factor * plain.factor(at, values)
    assert not RampedSchedule(schedules.get("constant"), sizes).is_constant({})
    of = of_sizes(replace(GROWING, learning_rate=rule), optimizer="momentum")
    both = []
    for kind in ("module", "stacked"):
        trained = engine(kind, of, trials(of, 2, learning_rate=0.01))
        trained.advance(60)
        both.append(trained.weights(1))
    assert largest_difference(*both) < 1e-9


def resolved(name: str, growth: int, **values: float) -> BatchSizes:
    arguments = {"decay_steps": 100, **values}
    schedule = schedules.get(name)
    return Ramp(instead_of_decay=growth).resolve(
        10, 200, examples=10**6,
        schedule=schedule, arguments=arguments, tuned=(),
    )  # fmt: skip


def test_where_the_rate_would_drop_tenfold_the_batch_grows_tenfold() -> None:
    """Smith et al. 2018: the rate itself does not change."""
    values = {"drops": 2, "gamma": 0.1}
    sizes = resolved("step", 100, **values)
    assert sizes.sizes == (10, 100, 1000)
    assert [sizes.examples(start) for start in sizes.starts] == [0, 500, 1000]
    assert sizes.budget_steps == 50 + 5 + 1
    ramped = RampedSchedule(schedules.get("step"), sizes)
    factors = [ramped.factor(step, {"decay_steps": 100, **values}) for step in range(56)]
    assert factors == pytest.approx([1] * 56)


@pytest.mark.parametrize("name", ["linear", "cosine", "exponential", "polynomial", "wsd"])
@pytest.mark.parametrize("warmup", [0, 20])
def test_rate_over_batch_size_is_the_schedules(name: str, warmup: int) -> None:
    """At every step, also beyond the largest batch; and the batch is as large as it can be."""
    values = {"decay_steps": 100, "stable_steps": 50, "end_factor": 0.05, "warmup_steps": warmup}
    schedule, sizes = schedules.get(name), resolved(name, 8, **values)
    ramped = RampedSchedule(schedule, sizes)
    assert sizes.largest == 80
    assert sizes.budget_steps is not None
    for step in range(sizes.budget_steps):
        at = sizes.examples(step) // 10
        assert sizes.examples(step) % 10 == 0
        factor, size = schedule.factor(at, values), sizes.size(step)
        assert ramped.factor(step, values) / size == pytest.approx(factor / 10)
        if at >= warmup:
            assert size == 10 * min(8, math.floor(1 / factor + 1e-9) if factor else 8)


TEXT = """\
workload: digits-softmax
grid:
  batch_size:
    from: [16, 64]
    ramp: {ramp}
  optimizer: sgd
schedule: {schedule}
budget: {budget}
trials: 4
"""


def of_file(folder: Path, ramp: str, **changes: str) -> list[Study]:
    """The studies of an experiment file."""
    parts = {"schedule": "constant", "budget": "200 steps", **changes}
    return own(folder, TEXT.format(ramp=ramp, **parts)).studies()


def test_a_ramp_is_a_factor_of_the_grid(tmp_path: Path) -> None:
    ramps = "[none, {double_at: [0.25, 0.5]}, {at: [[0.5, 3]]}]"
    plans = of_file(tmp_path, ramps, schedule="linear")
    assert [(p.batch_size, p.technique.get("ramp")) for p in plans] == [
        (16, None), (64, None),
        (16, "2x at 0.25, 4x at 0.5"), (64, "2x at 0.25, 4x at 0.5"),
        (16, "3x at 0.5"), (64, "3x at 0.5"),
    ]  # fmt: skip
    ruled = of_file(tmp_path, "{at: [[0.5, 3]], learning_rate: sqrt}", schedule="linear")
    assert [p.technique["ramp"] for p in ruled] == ["3x at 0.5, learning rate sqrt"] * 2
    assert not {p.id for p in ruled} & {p.id for p in plans}
    assert [p.batches.sizes for p in plans[2:4]] == [(16, 32, 64), (64, 128, 256)]
    assert [p.budget_steps for p in plans[::2]] == [200, 50 + 25 + 25, 100 + 33]
    lengths = [int(p.trial(0).metaparameters["decay_steps"]) for p in plans]
    assert all(100 <= length <= 200 for length in lengths)  # shares of the budget's 200
    assert len({p.id for p in plans}) == 6


def test_a_ramp_that_never_grows_is_none(tmp_path: Path) -> None:
    text = TEXT.replace("\n    from: [16, 64]\n    ramp: {ramp}\n", " [16, 64]\n")
    plain = own(tmp_path, text.format(schedule="constant", budget="200 steps")).studies()
    for ramp in ("none", "{at: [[0.5, 1]]}"):
        plans = of_file(tmp_path, ramp)
        assert [p.trial(0) for p in plans] == [p.trial(0) for p in plain]
        assert all(p.ramp is None for p in plans)


def test_another_budget_is_another_ramp(tmp_path: Path) -> None:
    """Its shares are of the budget, which identities of other trials do not hold."""

    def ids(ramp: str, budget: str) -> list[str]:
        return [plan.trial(0).id for plan in of_file(tmp_path, ramp, budget=budget)]

    half = ids("{double_at: [0.5]}", "200 steps")
    assert not {*half} & {*ids("{double_at: [0.5]}", "400 steps")}
    assert half == ids("{double_at: [0.25]}", "400 steps")  # the same phases
