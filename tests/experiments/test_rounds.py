"""Which rows of a study's table are trained, and when a trial is done."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.plan import Outcome, Pack, Study
from experiments.scheduling import rounds
from experiments.scheduling.rounds import Record, cutoff, goals, settled, wave
from tests.experiments.fakes import FakeTraining, Plan, points, study


def record(status: str, reason: str, run: int, steps: int | None = None) -> Record:
    return Record(status=status, stop_reason=reason, steps_run=run, steps_to_target=steps)


REACHED = record("COMPLETE", "target", 40, 40)
AT_BUDGET = record("COMPLETE", "budget", 100)
DIVERGED = record("INFEASIBLE", "diverged", 7)
DOMINATED = record("INCOMPLETE", "dominated", 50)
FAILED = record("INCOMPLETE", "error", 3)


def test_rounds_double_up_to_the_trials_wanted() -> None:
    assert goals(100) == (16, 32, 64, 100)
    assert goals(64) == (16, 32, 64)
    assert goals(16) == (16,)
    assert goals(5) == (5,)


def test_a_round_keeps_its_share_of_the_best_exact() -> None:
    of = study(trials=64, keep=4)
    assert [rounds.keep_in_round(of, number) for number in range(3)] == [1, 2, 4]
    assert [rounds.keep_in_round(study(trials=100, keep=4), n) for n in range(4)] == [1, 2, 3, 4]
    assert rounds.keep_in_round(study(trials=16, keep=4), 0) == 4  # the last round
    assert rounds.keep_in_round(replace(of, keep=None), 0) is None


def test_what_an_early_round_stopped_short_of_the_last_bar_goes_on_when_its_rows_are_settled() -> (
    None
):
    of = study(trials=32, keep=2)
    plan = Plan(of, points(128, diverging=0.0))
    rows = plan.trials(0, 32)
    hit = record("COMPLETE", "target", 20, 20)
    records = {t.id: record("INCOMPLETE", "dominated", 20) for t in rows[:16]} | {rows[0].id: hit}

    def now() -> rounds.Wave | None:
        return wave(of, plan.trials, plan.max_rows, lambda t: records.get(t.id))

    found = now()
    assert found is not None
    assert (found.round, found.keep, found.trials) == (1, 2, tuple(rows[16:]))
    late = record("COMPLETE", "target", 30, 30)
    records |= {t.id: record("INCOMPLETE", "dominated", 30) for t in rows[16:]}
    records[rows[16].id] = late
    found = now()
    assert found is not None
    assert found.trials == tuple(rows[1:16])  # they stopped at 20, and the second best took 30
    records |= {t.id: record("INCOMPLETE", "dominated", 30) for t in rows[1:16]}
    assert now() is None


def test_the_bar_is_the_keep_th_smallest() -> None:
    assert cutoff([3, 5, 5, 9], 3) == 5
    assert cutoff([3, 9], 3) is None
    assert cutoff([3, 9], None) is None


@pytest.mark.parametrize(
    ("found", "dominated_at", "changes", "expected"),
    [
        (None, None, {}, False),
        (REACHED, None, {}, True),
        (REACHED, None, {"stop_at_target": False}, False),  # it was stopped short of its budget
        (AT_BUDGET, None, {}, True),
        (AT_BUDGET, None, {"budget_steps": 200}, False),  # a raised budget reopens it
        (REACHED, None, {"budget_steps": 200}, True),
        (DIVERGED, None, {"budget_steps": 200}, True),  # infeasible trials are not tried again
        (DOMINATED, 50, {}, True),
        (DOMINATED, 50, {"budget_steps": 200}, True),  # still dominated, whatever the budget
        (DOMINATED, 60, {}, False),  # keep was raised: the bar has moved away
        (DOMINATED, None, {}, False),  # keep is off
        (FAILED, None, {}, True),
        (replace(FAILED, fresh=False), None, {}, False),  # an earlier run's: once more
    ],
)
def test_settled(
    found: Record | None, dominated_at: int | None, changes: dict[str, object], expected: bool
) -> None:
    assert settled(study(**changes), found, dominated_at) is expected


def test_what_diverged_beyond_the_bar_counts() -> None:
    late = record("INFEASIBLE", "diverged", 60)
    records = [REACHED, late, DIVERGED, None, FAILED]
    drawn: rounds._Drawn[int] = rounds._Drawn(study(), records.__getitem__)
    drawn.extend(range(5))
    assert drawn.feasible(1) == 4  # the bar is at 40
    assert drawn.feasible(None) == 3


def finish(of: Study, plan: Plan, order: random.Random) -> tuple[dict[str, Record], list[str]]:
    """Train a study to its end, in packs of random size and order; its records and rows."""
    records: dict[str, Record] = {}

    def reached() -> list[int | None]:
        return [r.steps_to_target for r in records.values()]

    rows: list[str] = []
    while (found := wave(of, plan.trials, plan.max_rows, lambda t: records.get(t.id))) is not None:
        chosen = order.sample(found.trials, order.randint(1, len(found.trials)))
        known = tuple(s for s in reached() if s is not None)
        pack = Pack(id="pack", study=of, trials=tuple(chosen), known=known)
        for events in FakeTraining(pack).run():
            for event in events:
                if isinstance(event, Outcome):
                    records[event.trial] = Record.of(event)
                    rows.append(event.trial)
    return records, rows


@given(seed=st.integers(0, 10_000), trials=st.sampled_from([5, 16, 20, 40]))
def test_rows_and_minima_do_not_depend_on_order_and_packs(seed: int, trials: int) -> None:
    of = study(trials=trials, keep=2)
    plan = Plan(of, points(4 * trials, seed=seed, diverging=0.3))
    first, rows = finish(of, plan, random.Random(seed))
    second, _ = finish(of, plan, random.Random(seed + 1))
    assert len(rows) == len(set(rows))  # nothing twice
    assert first.keys() == second.keys()
    best = [sorted(r.steps_to_target or 999 for r in one.values())[:2] for one in (first, second)]
    assert best[0] == best[1]


def test_a_study_is_extended_until_enough_are_feasible() -> None:
    of = study(trials=8, keep=None)
    plan = Plan(of, [-0.1, 0.5] * 40)
    records, _ = finish(of, plan, random.Random(0))
    assert len(records) == 16
    assert sum(r.status != "INFEASIBLE" for r in records.values()) == 8


def test_four_times_the_trials_are_drawn_at_most() -> None:
    of = study(trials=8)
    records, _ = finish(of, Plan(of, [-0.1] * 100), random.Random(0))
    assert len(records) == 32


def test_a_round_draws_what_its_goal_lacks_and_the_last_one_goes_on() -> None:
    of = study(trials=40, keep=None)
    plan = Plan(of, [-0.01] * 4 + [0.5] * 156)
    records: dict[str, Record] = {}
    sizes = []
    while (
        found := rounds.wave(of, plan.trials, plan.max_rows, lambda t: records.get(t.id))
    ) is not None:
        sizes.append((found.round, len(found.trials)))
        for trial in found.trials:
            records[trial.id] = DIVERGED if trial.index < 4 else REACHED
    assert sizes == [(0, 16), (1, 20), (2, 8)]


def test_more_trials_keep_the_rows_there_are() -> None:
    some, more = study(trials=20, keep=None), study(trials=40, keep=None)
    few, _ = finish(some, Plan(some, points(160)), random.Random(0))
    many, _ = finish(more, Plan(more, points(160)), random.Random(0))
    assert few.keys() < many.keys()
    assert all(many[trial] == found for trial, found in few.items())
