"""Branches of a trial are the trial with a batch-size ramp, begun from its state at a step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from experiments.batch_sizes import BatchSizes
from experiments.errors import ExperimentError
from experiments.factors.ramp import Ramp
from experiments.plan import Measurement, Study, Trial
from experiments.training import branches as module
from experiments.training.batch_order import BranchedOrder
from experiments.training.branches import Branch, branches, train, windows
from tests.problems import engine, study, trials

LENGTHS = (8, 16)
STEP = 37


def of(**changes: Any) -> Study:
    """A study whose training set is known, with a schedule that decays meanwhile."""
    given = {"train_examples": 1297, "budget_steps": 80, "batch_size": 16, "schedule": "linear"}
    return study(**{**given, **changes})


def branched(
    one: Study, trial: Trial, times: int, rule: str = "none", *, seeds: int = 1, step: int = STEP
) -> Branch:
    return branches(
        one, trial, step=step, times=times, lengths=LENGTHS, seeds=seeds, rule=rule, code="code"
    )


def metrics(one: Study, trial: Trial, kind: str, steps: int) -> dict[str, float]:
    """Those of the trial after so many steps, trained from its beginning."""
    return engine(kind, one, (trial,), steps=steps).evaluate("validation")[0]


def values(measurement: Measurement) -> dict[str, float]:
    return {name.removeprefix("validation_"): v for name, v in measurement.metrics.items()}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_a_branch_is_a_trial_with_a_ramp(kind: str, optimizer: str) -> None:
    """Bit for bit, whichever other branches are in its pack: with k = 1 it is the trial itself."""
    one = of(optimizer=optimizer)
    (trial,) = trials(one, 1, learning_rate=0.01)
    wanted = [branched(one, trial, 1, seeds=2), branched(one, trial, 4, "sqrt", seeds=3)]
    plain, grown = train(one, trial, kind, wanted, "cpu")
    for measurement, length in zip(of_seed(plain, 0), LENGTHS, strict=True):
        assert measurement.step == STEP + length
        assert values(measurement) == metrics(one, trial, kind, STEP + length)
    share = Ramp.parse({"at": [[STEP / 80, 4]], "learning_rate": "sqrt"})
    assert share is not None
    sizes = share.resolve(16, 80, examples=1297, schedule=one.algorithm[1], arguments={}, tuned=())
    assert sizes.starts == (0, STEP)
    with_ramp = replace(one, ramp=sizes, budget_steps=sizes.budget_steps or 0)
    for measurement, length in zip(of_seed(grown, 0), LENGTHS, strict=True):
        assert measurement.step == STEP + length // 4
        assert measurement.examples == 16 * (STEP + length)
        assert values(measurement) == metrics(with_ramp, trial, kind, STEP + length // 4)
    losses = {m.metrics["validation_cross_entropy"] for m in grown[1] if m.step == STEP + 4}
    assert len(losses) == 3
    assert grown[0].study.technique["ramp"] == f"4x at {STEP / 80!r}, learning rate sqrt"


def of_seed(made: tuple[Branch, list[Measurement], Any], seed: int) -> list[Measurement]:
    branch, measured, _ = made
    return [m for m in measured if m.trial == branch.trials[seed].id]


def test_the_same_seed_sees_the_same_examples_at_every_size() -> None:
    one = of()
    (trial,) = trials(one, 1)
    drawn = []
    for times in (1, 4):
        branch = branched(one, trial, times, seeds=2)
        (row,) = [t for t in branch.trials if t.branch]
        order = engine("module", branch.study, (row,)).context.order(row)
        assert isinstance(order, BranchedOrder)
        steps = 16 // times
        drawn.append(order.batches(STEP, steps).flatten().tolist())
    assert drawn[0] == drawn[1]


def test_a_trial_is_trained_once_to_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only as far as a branch needs it."""
    one = of()
    (trial,) = trials(one, 1)
    steps: list[int] = []
    plain = module._Loop.reach

    def reach(loop: Any, step: int) -> None:
        steps.append(step)
        plain(loop, step)

    monkeypatch.setattr(module._Loop, "reach", reach)
    wanted = [branched(one, trial, k, step=step) for k in (1, 2) for step in (40, 20)]
    made = [*train(one, trial, "module", wanted, "cpu")]
    assert [(b.step, b.times) for b, _, _ in made] == [(20, 1), (20, 2), (40, 1), (40, 2)]
    assert steps == [20, 40]
    assert [*train(one, trial, "module", [], "cpu")] == []


def test_one_that_diverges_ends_alone() -> None:
    one = of(precision="float64")
    (trial,) = trials(one, 1, learning_rate=0.1, weight_decay=0.0)
    wild = branched(one, trial, 2, seeds=2)
    first, second = wild.trials
    hot = replace(first, metaparameters={**first.metaparameters, "learning_rate": math.inf})
    wild = replace(wild, trials=(hot, second))
    ((_, measured, outcomes),) = train(one, trial, "module", [wild], "cpu")
    ended = {o.trial: (o.status, o.stop_reason) for o in outcomes}
    assert ended == {hot.id: ("INFEASIBLE", "diverged"), second.id: ("COMPLETE", "budget")}
    assert {m.trial for m in measured} == {second.id}
    with pytest.raises(ExperimentError, match="has diverged before step 37"):
        [*train(one, replace(hot, id="trial"), "module", [wild], "cpu")]


def test_windows_are_whole_numbers_of_steps_at_every_size() -> None:
    assert windows(500, [2, 4, 8]) == (128, 248, 376, 496)
    assert windows(3, [2, 4]) == (4,)
    assert windows(12, [2, 3]) == (6, 12)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"step": 70}, "from step 70 a window of 16 steps is not within the budget"),
        ({}, {"step": 0}, "from step 0 a window"),
        ({}, {"times": 128}, "128 times batch size 16 is over the training set"),
        ({"train_examples": None}, {}, "need training data that can be read in any order"),
        ({"ramp": BatchSizes.growing(16, 80, [(20, 32)])}, {}, "the batch size of trial"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    one = of(**changes)
    (trial,) = trials(one, 1)
    with pytest.raises(ExperimentError, match=message) as raised:
        branched(one, trial, **{"times": 2, **arguments})
    assert raised.value.hint
