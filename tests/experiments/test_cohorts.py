"""Trials that join a pack later, or are taken back to an earlier step, train as they do alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments import optimizers
from experiments.engines import Engine
from experiments.engines.base import gather
from experiments.plan import Outcome, Pack, Study, Trial
from experiments.training.pack_training import Training
from tests.marks import quick
from tests.problems import SCHEDULES, engine, largest_difference, outcomes, study, train, trials

KINDS = ["module", "stacked"]
# In the module engine each trial has its own optimizer object, so that joining is the same for all
# of them; a stack has one state for all its trials, whose form differs from optimizer to optimizer.
MODULE = ["momentum", "muon", "RMSprop"]
JOINS = [
    *(("stacked", name, "linear") for name in [*optimizers.names(), "RMSprop"]),
    *(("stacked", "adam", schedule) for schedule in SCHEDULES if schedule != "linear"),
    *(("module", name, "linear") for name in MODULE),
    ("module", "adam", "cyclical"),
]
PRODUCT = [
    *(("stacked", name, "linear") for name in [*optimizers.names(), "RMSprop"]),
    *(("module", name, "linear") for name in [*optimizers.names(), "RMSprop"]),
    *((kind, "adam", schedule) for kind in KINDS for schedule in SCHEDULES),
]


pytestmark = pytest.mark.usefixtures("one_thread")


def bits(one: Engine, row: int) -> list[bytes]:
    """A trial's weights and its running sum of losses."""
    loss = one.copy([row])[0]["loss"]
    return [v.numpy().tobytes() for v in (loss, *one.weights(row).values())]


def alone(kind: str, of: Study, trial: Trial, steps: int) -> tuple[Any, ...]:
    """A trial's weights and metrics after so many steps by itself."""
    one = engine(kind, of, (trial,))
    one.advance(steps)
    return bits(one, 0), one.evaluate("validation")[0]


def same(one: Engine, kind: str, of: Study) -> bool:
    """Whether each trial is what it is alone, looked at together and one at a time."""
    found = one.evaluate("validation")
    for row, (trial, steps) in enumerate(zip(one.trials, one.steps, strict=True)):
        weights, metrics = alone(kind, of, trial, steps)
        if (bits(one, row), found[row]) != (weights, metrics):
            return False
        if one.evaluate("validation", [row]) != [metrics]:
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "optimizer", "schedule"),
    quick(
        [
            *JOINS,
            *(pytest.param(*case, marks=pytest.mark.slow) for case in PRODUCT if case not in JOINS),
        ],
        10,
    ),
)
def test_a_trial_that_joins_trains_as_alone(kind: str, optimizer: str, schedule: str) -> None:
    of = study(optimizer=optimizer, schedule=schedule, batch_size=300)
    some = trials(of, 9)
    one = engine(kind, of, some[:3])
    one.advance(5)
    one.add(some[3:5])
    one.advance(3)
    one.keep([0, 2, 3])  # in the stack, 1 and 4 stay behind
    one.add(some[5:6])  # and make room
    assert one.steps == [8, 8, 3, 0]
    one.advance(4)
    one.add(some[6:])  # the stack grows
    one.advance(6)
    assert [t.index for t in one.trials] == [0, 2, 3, 5, 6, 7, 8]
    assert one.steps == [18, 18, 13, 10, 6, 6, 6]
    assert same(one, kind, of)


@pytest.mark.parametrize("optimizer", optimizers.names())
def test_weight_decay_joins_those_without(optimizer: str) -> None:
    of = study(optimizer=optimizer, batch_size=300)
    one = engine("stacked", of, trials(of, 2, weight_decay=0.0))
    one.advance(3)
    one.add(trials(of, 2, seed=1, weight_decay=0.01))
    one.advance(4)
    assert same(one, "stacked", of)


@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_a_pack_that_has_emptied_is_filled_again(kind: str) -> None:
    of = study(workload="digits-mlp", optimizer="adam", batch_size=16)
    some = trials(of, 8)
    one = engine(kind, of, some[:4])
    one.advance(3)
    one.keep([])
    assert one.steps == []
    one.add(some[4:])
    one.advance(7)
    assert same(one, kind, of)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw", "RMSprop"])
def test_a_trial_taken_back_goes_the_same_way_again(kind: str, optimizer: str) -> None:
    of = study(workload="digits-mlp", optimizer=optimizer, schedule="cosine", batch_size=300)
    some = trials(of, 5)
    one = engine(kind, of, some)
    one.advance(6)
    held = one.copy([1, 3])
    one.advance(5)
    one.restore(3, held[1])
    assert one.steps == [11, 11, 11, 6, 11]
    assert same(one, kind, of)
    one.advance(3)
    one.keep([1, 3, 4])
    one.restore(0, held[0])
    one.advance(2)
    assert one.steps == [8, 11, 16]
    assert same(one, kind, of)
    one.restore(0, held[0])  # once more: what is held was not trained on
    assert same(one, kind, of)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "RMSprop"])
def test_the_state_of_several_cohorts_continues_exactly(kind: str, optimizer: str) -> None:
    of = study(optimizer=optimizer, schedule="linear", batch_size=300)
    some = trials(of, 6)
    one = engine(kind, of, some[:4])
    one.advance(4)
    one.add(some[4:])
    one.advance(3)
    one.keep([0, 2, 4, 5])
    other = engine(kind, of, tuple(one.trials))
    other.load(one.state())
    assert other.steps == one.steps == [7, 7, 3, 3]
    for each in (one, other):
        each.advance(5)
        assert same(each, kind, of)


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_are_looked_at_as_all_are(kind: str) -> None:
    of = study(workload="digits-mlp", batch_size=64)
    one = engine(kind, of, trials(of, 13))
    one.advance(4)
    whole = one.evaluate("validation")
    for rows in ([5], [0, 12], [1, 2, 3, 7, 11], list(range(13))):
        assert one.evaluate("validation", rows) == [whole[row] for row in rows]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "RMSprop"])
def test_on_a_gpu_joining_and_going_back_change_rounding_alone(kind: str, optimizer: str) -> None:
    of = study(optimizer=optimizer, schedule="linear", precision="float64", batch_size=32)
    some = trials(of, 5)
    one = engine(kind, of, some[:3], "cuda")
    one.advance(6)
    held = gather(one.copy([1]), torch.device("cpu"))  # as a snapshot has it
    one.add(some[3:])
    one.advance(4)
    one.restore(1, held[0])
    one.advance(3)
    assert one.steps == [13, 9, 13, 7, 7]
    for row, trial in enumerate(one.trials):
        alone = engine(kind, of, (trial,), "cuda")
        alone.advance(one.steps[row])
        assert largest_difference(one.weights(row), alone.weights(0)) < 1e-8
        metrics = one.evaluate("validation", [row])[0]
        assert metrics == pytest.approx(alone.evaluate("validation")[0], rel=1e-6)


def told(events: list[Any]) -> dict[str, list[Any]]:
    """What was said of each trial, clocks left out."""
    found: dict[str, list[Any]] = {}
    for e in events:
        said = (
            (e.status, e.stop_reason, e.steps_run, e.steps_to_target)
            if isinstance(e, Outcome)
            else (e.step, e.examples, dict(e.metrics))
        )
        found.setdefault(e.trial, []).append(said)
    return found


def joining(
    of: Study, kind: str, some: tuple[Trial, ...], when: dict[int, int], snapshots: bool
) -> list[Any]:
    """A pack of the first trial that others join: trial ``i`` after ``when[i]`` looks.

    With ``snapshots`` it goes on from one in a new process every third look.
    """
    pack = Pack(id="pack", study=of, trials=some[:1], engine=kind)  # type: ignore[arg-type]
    training, events, number = Training(pack), [], 0
    while len(training.pack.trials) < len(some) or training.active:
        if new := tuple(some[i] for i, at in when.items() if at == number):
            training.add(new)
        events += next(training.run(), [])
        number += 1
        if snapshots and training.active and number % 3 == 0:
            training = Training(training.pack, snapshot=training.snapshot())
    return events


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "RMSprop"])
def test_who_joins_ends_as_alone(kind: str, snapshots: bool, optimizer: str) -> None:
    of = study(optimizer=optimizer, schedule="linear", budget_steps=40, keep=None)
    of = replace(of, evaluation_ratio=1.3)
    some = trials(of, 6, seed=2, decay_steps=60)
    when = {1: 2, 2: 2, 3: 7, 4: 30, 5: 60}  # the last ones after the others have ended
    found = told(joining(of, kind, some, when, snapshots))
    for trial in some:
        alone = told(train(of, (trial,), kind))[trial.id]
        assert found[trial.id] == alone


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_dominated_stopping_counts_each_trials_own_steps(kind: str) -> None:
    of = study(optimizer="momentum", budget_steps=150, target="validation_error < 0.08")
    some = trials(of, 8, seed=5)
    full = {t.id: outcomes(train(replace(of, keep=None), (t,), kind))[t.id] for t in some}
    reached = sorted(o.steps_to_target for o in full.values() if o.steps_to_target)
    for keep in (1, 2):
        when = {i: 3 * i for i in range(1, len(some))}
        ended = outcomes(joining(replace(of, keep=keep), kind, some, when, False))
        for trial, end in full.items():
            if end.steps_to_target and end.steps_to_target <= reached[keep - 1]:
                assert ended[trial].steps_to_target == end.steps_to_target
                assert ended[trial].last_miss == end.last_miss
            elif ended[trial].stop_reason == "dominated":
                assert ended[trial].steps_run >= reached[keep - 1]
        assert any(end.stop_reason == "dominated" for end in ended.values())
