"""Which rows of a study's table are trained, and when a trial is done; slow twins say that what is
remembered between two decisions changes none."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.plan import Outcome, Pack, Study, Trial
from experiments.scheduling import packs, rounds
from experiments.scheduling.rounds import Lookup, Record, Wave, cutoff, goals, settled, wave
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import FakeTraining, listed, points, study


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
    plan = listed(of, points(128, diverging=0.0))
    rows = plan.draw(0, 32)
    hit = record("COMPLETE", "target", 20, 20)
    records = {t.id: record("INCOMPLETE", "dominated", 20) for t in rows[:16]} | {rows[0].id: hit}

    def now() -> rounds.Wave | None:
        return wave(of, plan.draw, plan.max_rows, lambda t: records.get(t.id))

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


def finish(of: Study, plan: Study, order: random.Random) -> tuple[dict[str, Record], list[str]]:
    """Train a study to its end, in packs of random size and order; its records and rows."""
    records: dict[str, Record] = {}

    def reached() -> list[int | None]:
        return [r.steps_to_target for r in records.values()]

    rows: list[str] = []
    while (found := wave(of, plan.draw, plan.max_rows, lambda t: records.get(t.id))) is not None:
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
    plan = listed(of, points(4 * trials, seed=seed, diverging=0.3))
    first, rows = finish(of, plan, random.Random(seed))
    second, _ = finish(of, plan, random.Random(seed + 1))
    assert len(rows) == len(set(rows))  # nothing twice
    assert first.keys() == second.keys()
    best = [sorted(r.steps_to_target or 999 for r in one.values())[:2] for one in (first, second)]
    assert best[0] == best[1]


def test_a_study_is_extended_until_enough_are_feasible() -> None:
    of = study(trials=8, keep=None)
    plan = listed(of, [-0.1, 0.5] * 40)
    records, _ = finish(of, plan, random.Random(0))
    assert len(records) == 16
    assert sum(r.status != "INFEASIBLE" for r in records.values()) == 8


def test_four_times_the_trials_are_drawn_at_most() -> None:
    of = study(trials=8)
    records, _ = finish(of, listed(of, [-0.1] * 100), random.Random(0))
    assert len(records) == 32


def test_a_round_draws_what_its_goal_lacks_and_the_last_one_goes_on() -> None:
    of = study(trials=40, keep=None)
    plan = listed(of, [-0.01] * 4 + [0.5] * 156)
    records: dict[str, Record] = {}
    sizes = []
    while (
        found := rounds.wave(of, plan.draw, plan.max_rows, lambda t: records.get(t.id))
    ) is not None:
        sizes.append((found.round, len(found.trials)))
        for trial in found.trials:
            records[trial.id] = DIVERGED if trial.index < 4 else REACHED
    assert sizes == [(0, 16), (1, 20), (2, 8)]


def test_more_trials_keep_the_rows_there_are() -> None:
    some, more = study(trials=20, keep=None), study(trials=40, keep=None)
    few, _ = finish(some, listed(some, points(160)), random.Random(0))
    many, _ = finish(more, listed(more, points(160)), random.Random(0))
    assert few.keys() < many.keys()
    assert all(many[trial] == found for trial, found in few.items())


def plain_wave(state: StudyState, lookup: Lookup) -> Wave | None:
    """``rounds.wave``, with every record read and every cutoff computed again for each question."""
    of, rows = state.study, state.study.draw
    goals = rounds.goals(of.trials)
    drawn: list[Trial] = []
    exact = rounds.keep_in_round(of, 0)

    def limit(keep: int | None) -> int | None:
        records = [record for record in map(lookup, drawn) if record]
        if not of.stop_at_target:
            return None
        return rounds.cutoff(sorted(r.steps_to_target for r in records if r.steps_to_target), keep)

    def missing(trials: Sequence[Trial], keep: int | None) -> tuple[Trial, ...]:
        return tuple(t for t in trials if not rounds.settled(of, lookup(t), limit(keep)))

    for number, goal in enumerate(goals):
        keep = rounds.keep_in_round(of, number)
        while True:
            bar = limit(exact)
            ended = [record for record in map(lookup, drawn) if record]
            lost = [r.steps_run for r in ended if r.status == "INFEASIBLE"]
            lacking = goal - len(drawn) + sum(bar is None or steps <= bar for steps in lost)
            new = rows(len(drawn), len(drawn) + max(0, lacking)) if lacking > 0 else []
            drawn.extend(new)
            for part in (new, drawn):
                if left := missing(part, keep):
                    return Wave(round=number, trials=left, keep=keep)
            exact = keep
            if number < len(goals) - 1 or not new:
                break
    return None


def drawn_record(rng: random.Random, budget: int = 100) -> Record:
    kind = rng.choice(["target", "target", "budget", "dominated", "diverged", "error"])
    status = {"diverged": "INFEASIBLE", "error": "INCOMPLETE", "dominated": "INCOMPLETE"}
    steps = budget if kind == "budget" else rng.randint(1, budget - 1)
    return Record(
        status=status.get(kind, "COMPLETE"),
        stop_reason=kind,
        steps_run=steps,
        steps_to_target=steps if kind == "target" else None,
        fresh=rng.random() < 0.8,
    )


def state_of(rng: random.Random, name: str = "a", batch_size: int = 64) -> StudyState:
    of = study(
        id=name,
        trials=rng.choice([3, 16, 20, 40, 70]),
        batch_size=batch_size,
        keep=rng.choice([None, 1, 4]),
        stop_at_target=rng.random() < 0.8,
    )
    values = points(300, seed=rng.randint(0, 99))
    of = listed(of, values, {"learning_rate": {"linear": [-1.0, 2.0]}})
    return StudyState(study=of, columns={}, label=name)


@pytest.mark.parametrize("seed", range(20))
def test_waves_hits_and_needs_after_every_record(seed: int) -> None:
    rng = random.Random(seed)
    state = state_of(rng)
    for _ in range(120):
        wave = state.wave()
        assert wave == plain_wave(state, lambda trial: state.records.get(trial.id))
        counts = state.counts()
        assert (counts.left + counts.retried == 0) == (wave is None)
        assert counts.left + counts.retried >= (len(wave.trials) if wave else 0)
        drawn = {t.id: state.records.get(t.id) for t in state.drawn()}
        hits = {t: r.steps_to_target for t, r in drawn.items() if r and r.steps_to_target}
        assert state.hits() == sorted(hits.values())
        but = rng.sample(sorted(drawn), min(3, len(drawn)))
        assert state.hits(but) == sorted(s for t, s in hits.items() if t not in but)
        limit = rounds.cutoff(sorted(hits.values()), state.study.keep)
        for name, ended in drawn.items():
            assert state.need(name) is not rounds.settled(state.study, ended, limit)
        if wave is None:
            break
        for trial in rng.sample(wave.trials, rng.randint(1, min(9, len(wave.trials)))):
            state.put(trial.id, drawn_record(rng))
        if rng.random() < 0.2 and hits:  # recorded again, by another driver
            state.put(rng.choice(sorted(hits)), drawn_record(rng))


def plain_order(
    trials: Sequence[Trial], state: StudyState, others: Sequence[StudyState]
) -> list[str]:
    """``packs.by_priority``, a pair of trials at a time."""
    unit = [(t, (float(str(t.metaparameters["learning_rate"])) + 1) / 3) for t in trials]
    costs = []
    for _, place in unit:
        weight, total = 1e-9, 2e-9
        for each in (state, *others):
            ended = [(t, each.records[t.id]) for t in each.drawn() if t.id in each.records]
            least = min((r.steps_to_target for _, r in ended if r.steps_to_target), default=None)
            if least is None:
                continue
            fade = 0.5 ** abs(math.log2(each.study.batch_size / state.study.batch_size))
            for t, r in ended:
                other = (float(str(t.metaparameters["learning_rate"])) + 1) / 3
                near = math.exp(-((place - other) ** 2) / (2 * 0.12**2)) * fade
                hit = r.steps_to_target
                weight += near
                total += near * (2.0 if hit is None else min(2.0, math.log(hit / least)))
        costs.append(total / weight)
    return [unit[i][0].id for i in np.argsort(np.round(costs, 9), kind="stable")]


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_a_wave_after_every_few_records(seed: int) -> None:
    rng = random.Random(seed)
    states = [state_of(rng, name, 2**k) for k, name in enumerate("abc")]
    for _ in range(12):
        for state in states:
            wave = state.wave()
            if wave is None:
                continue
            for trial in rng.sample(wave.trials, min(4, len(wave.trials))):
                state.put(trial.id, drawn_record(rng))
        for state in states:
            wave = state.wave()
            others = [each for each in states if each is not state]
            if wave is not None and any(each.hits() for each in states):
                order = packs.by_priority(wave.trials, state, others)
                assert [trial.id for trial in order] == plain_order(wave.trials, state, others)
