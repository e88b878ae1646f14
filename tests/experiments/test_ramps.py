"""Batch sizes that grow: the steps, the order of examples, the engines, the learning rate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments import schedules
from experiments.batch_sizes import BatchSizes
from experiments.factors.ramp import Ramp, RampedSchedule
from experiments.plan import Pack, Study
from experiments.training.batch_order import BatchOrder
from experiments.training.pack_training import Training
from tests.experiments.test_cohorts import bits
from tests.marks import quick
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

KINDS = ["module", "stacked"]


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


CONSTANT = BatchSizes.growing(48, 40, [(7, 48), (21, 48)])
GROWING = BatchSizes.growing(16, 120, [(30, 40), (66, 96)])
ALL = {"schedule": "cosine", "technique": {"clip": 0.5, "ema": 0.9}, "optimizer": "adamw"}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", quick(KINDS, 1))
@pytest.mark.parametrize("workload", quick(["digits-softmax", "digits-mlp"], 1))
def test_a_ramp_that_is_constant_gives_the_same_bits_as_none(kind: str, workload: str) -> None:
    assert len(CONSTANT.sizes) == 3
    ramped = of_sizes(CONSTANT, precision="float32", workload=workload, **ALL)
    plain = replace(ramped, ramp=None)
    some = trials(plain, 4)
    a, b = engine(kind, ramped, some), engine(kind, plain, some)
    for steps in (3, 30, 7):
        a.advance(steps)
        b.advance(steps)
        assert [bits(a, row) for row in range(4)] == [bits(b, row) for row in range(4)]
    assert a.evaluate("validation") == b.evaluate("validation")
    events = [train(of, some, kind) for of in (ramped, plain)]
    assert [m.examples for m in measurements(events[0])] == [
        m.examples for m in measurements(events[1])
    ]


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_a_trial_resumes_in_the_middle_of_a_ramp(kind: str) -> None:
    """From a snapshot at each evaluation, in a new process's engine, to the same numbers; what is
    recorded counts the examples that were seen."""
    of = of_sizes(GROWING, optimizer="momentum", schedule="cosine")
    some = trials(of, 3, learning_rate=0.01)
    whole = train(of, some, kind)
    training = Training(Pack(id="pack", study=of, trials=some, engine=kind))  # type: ignore[arg-type]
    events: list[Any] = []
    while training.active:
        events += next(iter(training.run()))
        if training.active:
            training = Training(training.pack, snapshot=training.snapshot())
    assert GROWING.budget_steps is not None
    for one in (events, whole):
        assert [m.examples for m in measurements(one)] == [
            GROWING.examples(m.step) for m in measurements(one)
        ]
        for outcome in outcomes(one).values():
            assert outcome.steps_run == GROWING.budget_steps
            assert outcome.examples_run == GROWING.examples(GROWING.budget_steps) <= 120 * 16
    assert [(m.step, m.metrics) for m in measurements(events)] == [
        (m.step, m.metrics) for m in measurements(whole)
    ]


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


def resolved(name: str, growth: int, **values: float) -> BatchSizes:
    arguments = {"decay_steps": 100, **values}
    schedule = schedules.get(name)
    return Ramp(instead_of_decay=growth).resolve(
        10, 200, examples=10**6, ghost_batch=None,
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
