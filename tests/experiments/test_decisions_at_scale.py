"""What the scheduling remembers between two decisions changes none of them: slow twins."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from experiments.plan import Trial
from experiments.scheduling import packs, rounds
from experiments.scheduling.rounds import Lookup, Record, Wave
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import Plan, points, study


def plain_wave(state: StudyState, lookup: Lookup) -> Wave | None:
    """``rounds.wave``, with every record read and every cutoff computed again for each question."""
    of, rows = state.study, state.plan.trials
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


def record(rng: random.Random, budget: int = 100) -> Record:
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
    plan = Plan(of, points(300, seed=rng.randint(0, 99)))
    plan.search_space = {"learning_rate": {"linear": [-1.0, 2.0]}}
    return StudyState(plan=plan, columns={}, label=name)


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
            state.put(trial.id, record(rng))
        if rng.random() < 0.2 and hits:  # recorded again, by another driver
            state.put(rng.choice(sorted(hits)), record(rng))


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
                state.put(trial.id, record(rng))
        for state in states:
            wave = state.wave()
            others = [each for each in states if each is not state]
            if wave is not None and any(each.hits() for each in states):
                order = packs.by_priority(wave.trials, state, others)
                assert [trial.id for trial in order] == plain_order(wave.trials, state, others)
