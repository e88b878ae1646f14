"""A hit's bracket is walked again with finer looks, and nothing else changes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.engines.selection import Kind
from experiments.plan import Outcome, Pack, Study, Trial
from experiments.training.evaluation_grid import bracket, evaluation_steps, next_evaluation
from experiments.training.pack_training import Training
from tests.marks import quick
from tests.problems import engine, measurements, outcomes, study, train, trials

KINDS = ["module", "stacked"]
DENSE = 1.000001


pytestmark = pytest.mark.usefixtures("one_thread")


def coarse(**changes: Any) -> Study:
    """A study whose grid is coarse enough that most brackets hold earlier hits."""
    given = {
        "optimizer": "adam",
        "budget_steps": 160,
        "evaluation_ratio": 1.4,
        "target": "validation_error < 0.07",
        "keep": None,
        **changes,
    }
    return study(**given)


def some_of(of: Study, count: int) -> tuple[Trial, ...]:
    """Trials that reach the target after 20 to 160 steps."""
    rates = np.geomspace(0.03, 0.15, count) / (1 if of.optimizer == "adam" else 4)
    return tuple(
        replace(t, metaparameters={**t.metaparameters, "learning_rate": float(rate)})
        for t, rate in zip(trials(of, count, seed=3, decay_steps=200), rates, strict=True)
    )


def plain(events: list[Any]) -> list[Any]:
    """Events without clocks and without what refinement adds."""
    return [
        (e.trial, e.status, e.stop_reason, e.steps_run, e.steps_to_target, e.last_miss)
        if isinstance(e, Outcome)
        else (e.trial, e.step, e.examples, dict(e.metrics))
        for e in events
    ]


def by_trial(events: list[Any]) -> dict[str, list[Any]]:
    """The same, each trial's by themselves: a walk puts its trial's outcome off."""
    found: dict[str, list[Any]] = {}
    for event in plain(events):
        found.setdefault(event[0], []).append(event)
    return found


def scan(of: Study, trial: Trial, steps: tuple[int, ...], hit: int, miss: int) -> tuple[int, int]:
    """By hand: the first of ``steps`` at which a trial, trained afresh, beats the target."""
    one = engine("module", of, (trial,))
    target = of.targets[-1]
    for step in steps:
        one.advance(step - one.steps[0])
        if target.hit(one.evaluate("validation")[0]["error"]):
            return step, miss
        miss = step
    return hit, miss


@given(last=st.integers(0, 3000), width=st.integers(1, 300), ratio=st.floats(1.0001, 1.2))
def test_the_finer_grid_lies_within_the_bracket(last: int, width: int, ratio: float) -> None:
    steps = bracket(last, last + width, ratio)
    ends = (last, *steps, last + width)
    assert list(ends) == sorted(set(ends))
    for before, after in itertools.pairwise(ends):
        assert after - before <= max(1, before * (ratio - 1) + 1)
    assert bracket(last, last + width, 1 + 1e-9) == tuple(range(last + 1, last + width))


@given(ratio=st.floats(1.01, 2.0), budget=st.integers(1, 4000), step=st.integers(0, 3999))
def test_the_next_look_is_the_grids(ratio: float, budget: int, step: int) -> None:
    later = [look for look in evaluation_steps(ratio, budget) if look > step]
    assert next_evaluation(step, ratio, budget) == (later[0] if later else budget)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [DENSE, 1.1])
def test_the_finer_hit_is_what_a_scan_by_hand_finds(kind: Kind, ratio: float) -> None:
    of = coarse(refine=ratio)
    moved = 0
    for trial in some_of(of, 5):
        end = outcomes(train(of, (trial,), kind))[trial.id]
        assert end.steps_to_target is not None
        assert end.last_miss is not None
        assert end.refined_steps is not None
        assert end.refined_last_miss is not None
        assert end.last_miss <= end.refined_last_miss < end.refined_steps <= end.steps_to_target
        steps = bracket(end.last_miss, end.steps_to_target, ratio)
        by_hand = scan(of, trial, steps, end.steps_to_target, end.last_miss)
        assert (end.refined_steps, end.refined_last_miss) == by_hand
        moved += end.refined_steps < end.steps_to_target
    assert moved >= 3


EACH_TWICE = [
    ("adam", True, "module"),
    ("adam", False, "stacked"),
    ("RMSprop", False, "module"),
    ("schedule-free-adamw", True, "stacked"),
]


@pytest.mark.parametrize(
    ("optimizer", "stops", "kind"),
    quick(
        [
            pytest.param(*case, marks=[] if case in EACH_TWICE else pytest.mark.slow)
            for case in itertools.product(
                ["adam", "RMSprop", "schedule-free-adamw"], [True, False], KINDS
            )
        ],
        1,
    ),
)
def test_everything_else_is_what_it_is_without(kind: Kind, stops: bool, optimizer: str) -> None:
    without = coarse(optimizer=optimizer, schedule="linear", stop_at_target=stops)
    some = some_of(without, 5)
    found = []
    for of in (without, replace(without, refine=1.05)):
        training = Training(Pack(id="pack", study=of, trials=some, engine=kind), keep_weights=True)
        found.append(([event for look in training.run() for event in look], training.final))
    (events, weights), (refined, theirs) = found
    assert by_trial(events) == by_trial(refined)
    assert weights.keys() == theirs.keys()
    for trial, named in weights.items():
        assert all(torch.equal(named[n], value) for n, value in theirs[trial].items())
    ends = outcomes(refined)
    assert all(end.refined_steps is None for end in outcomes(events).values())
    least = min(end.steps_to_target for end in ends.values() if end.steps_to_target)
    for end in ends.values():
        assert (end.refined_steps is not None) >= (end.steps_to_target == least)
        assert (end.refined_steps is None) == (end.refined_last_miss is None)


def test_nothing_is_copied_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.engines.module import ModuleEngine

    def copy(*_: Any) -> Any:
        raise AssertionError("a copy without refinement")

    monkeypatch.setattr(ModuleEngine, "copy", copy)
    of = coarse()
    assert len(outcomes(train(of, trials(of, 3)))) == 3


def test_a_bracket_of_one_step_needs_no_walk() -> None:
    of = coarse(evaluation_ratio=1.001, refine=1.0005)
    for end in outcomes(train(of, some_of(of, 4))).values():
        if end.steps_to_target is not None and end.refined_steps is not None:
            assert (end.refined_steps, end.refined_last_miss) == (
                end.steps_to_target,
                end.last_miss,
            )


def test_who_is_worse_than_what_is_known_does_not_walk() -> None:
    of = coarse(refine=1.05)
    some = some_of(of, 5)
    hits = [o.steps_to_target for o in outcomes(train(of, some)).values()]
    steps = [hit for hit in hits if hit is not None]
    ended = outcomes(train(of, some, known=(min(steps) - 1,)))
    assert all(end.refined_steps is None for end in ended.values())
    assert any(end.steps_to_target is not None for end in ended.values())


def test_repeats_do_not_take_a_searched_trials_place() -> None:
    """Minima are over searched trials: what repeats reach neither stops them nor their walk."""
    of = coarse(refine=1.05, keep=1)
    some = some_of(of, 5)
    alone = {t.id: outcomes(train(of, (t,)))[t.id] for t in some}
    order = sorted(some, key=lambda t: alone[t.id].steps_to_target or 1000)
    first, second = replace(order[0], role="repeat"), order[1]
    found = outcomes(train(of, (first, second)))
    assert found[second.id].stop_reason == "target"
    assert found[second.id].refined_steps == alone[second.id].refined_steps


@pytest.mark.parametrize(
    ("stops", "kind"),
    quick(
        [
            (True, "module"),
            (False, "stacked"),
            pytest.param(False, "module", marks=pytest.mark.slow),
            pytest.param(True, "stacked", marks=pytest.mark.slow),
        ],
        1,
    ),
)
def test_a_walk_goes_on_from_any_snapshot(kind: Kind, stops: bool) -> None:
    of = coarse(refine=DENSE, stop_at_target=stops, budget_steps=160 if stops else 70)
    some = some_of(of, 5)
    pack = Pack(id="pack", study=of, trials=some, engine=kind)
    whole = [event for look in Training(pack).run() for event in look]
    training, events, walking = Training(pack), [], 0
    while True:  # a new process after each look
        look = next(training.run(), None)
        if look is None:
            break
        events += look
        if not training.active:
            break
        walking += bool(training._refinement.state.brackets)
        training = Training(pack, snapshot=training.snapshot())
    assert walking > 5

    def full(found: list[Any]) -> list[Any]:
        ends = [(e.refined_steps, e.refined_last_miss) for e in found if isinstance(e, Outcome)]
        return [*plain(found), *ends]

    assert full(events) == full(whole)
    assert len(measurements(events)) == len(measurements(whole))


@cache
def alone(keep: int) -> tuple[Study, tuple[Trial, ...], dict[str, Outcome]]:
    """Trials that tie in the minimum's bracket and others; and each as it ends by itself."""
    of = coarse(refine=1.03, keep=keep, evaluation_ratio=2.0)
    some = some_of(of, 8)
    ended = {t.id: outcomes(train(replace(of, keep=None), (t,)))[t.id] for t in some}
    return of, some, ended


@pytest.mark.slow
@settings(max_examples=12)
@given(data=st.data())
def test_whoever_ties_in_the_minimums_bracket_has_walked_it(data: st.DataObject) -> None:
    """Whatever the order, the packs, and where they are interrupted."""
    of, some, expected = alone(data.draw(st.sampled_from([1, 3])))
    order = data.draw(st.permutations(some))
    ended: dict[str, Outcome] = {}
    while order:
        size = data.draw(st.integers(1, len(order)))
        taken, order = tuple(order[:size]), order[size:]
        ended |= outcomes(_interrupted(of, taken, ended, data))
    reached = {t: e.steps_to_target for t, e in expected.items() if e.steps_to_target}
    least = min(reached.values())
    ties = {t for t, steps in reached.items() if steps == least}
    assert len(ties) > 1
    for trial, end in ended.items():
        if trial in ties:
            assert end.refined_steps is not None
        if end.refined_steps is not None:
            theirs = expected[trial]
            assert (end.refined_steps, end.refined_last_miss) == (
                theirs.refined_steps,
                theirs.refined_last_miss,
            )


def _interrupted(
    of: Study, some: tuple[Trial, ...], before: dict[str, Outcome], data: st.DataObject
) -> list[Any]:
    """A pack's events; perhaps killed after a look, to go on from a snapshot taken before."""
    known = tuple(e.steps_to_target for e in before.values() if e.steps_to_target)
    pack = Pack(id="pack", study=of, trials=some, engine="module", known=known)
    kept = data.draw(st.integers(0, 30))
    lost = data.draw(st.integers(0, 10))
    training, events, snapshot = Training(pack), [], None
    for number, look in enumerate(training.run()):
        if number == kept and training.active:
            snapshot = training.snapshot()
        if snapshot is None:
            events += look
        elif number == kept + lost:
            break
        elif number == kept:
            events += look
        if not training.active and snapshot is None:
            return events
    if snapshot is None:
        return events
    return [*events, *(e for look in Training(pack, snapshot=snapshot).run() for e in look)]
