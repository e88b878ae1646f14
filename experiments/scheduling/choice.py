"""Which study gets the next pack, and which of its trials: pure judgement, no state of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.plan import Trial
from experiments.scheduling import priority, rounds
from experiments.scheduling.study_state import StudyState

_SMALL_PACK = 4
"""A wave is not cut into packs below this size to occupy more workers."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A pack to send out."""

    state: StudyState
    wave: rounds.Wave
    trials: Sequence[Trial]


def choose(
    states: Sequence[StudyState],
    *,
    may_start: Callable[[StudyState, rounds.Wave], bool],
    proven: Callable[[StudyState], bool],
    taken: set[str],
    slots: int,
    size: int,
) -> Choice | None:
    """The next pack of at most ``size`` trials, ``None`` when no study has one.

    Breadth first: the lowest round first. Of a shape that has not run yet the cheapest study is
    first, since it tells soonest whether it can; else the longest, so that workers end together.
    In a study the trials that are likely good come first.

    Args:
        taken: trials that somebody has already.
    """
    best: tuple[tuple[bool, int, float], StudyState, rounds.Wave] | None = None
    scale = _seconds_a_cost(states)
    for state in states:
        wave = state.wave()
        if wave is None or not may_start(state, wave):
            continue
        if all(trial.id in taken or trial.id in state.busy for trial in wave.trials):
            continue
        expected = state.seconds if state.seconds is not None else state.cost() * scale
        fresh = not proven(state)
        rank = (not fresh, wave.round, expected if fresh else -expected)
        if best is None or rank < best[0]:
            best = (rank, state, wave)
    if best is None:
        return None
    _, state, wave = best
    parts = max(1, slots // len(states))
    count = min(size, max(_SMALL_PACK, -(-len(wave.trials) // parts)))
    trials = pick(state, wave, states, taken=taken, count=count)
    return Choice(state=state, wave=wave, trials=trials)


def pick(
    state: StudyState,
    wave: rounds.Wave,
    states: Sequence[StudyState],
    *,
    taken: set[str],
    count: int,
) -> Sequence[Trial]:
    """Of a study's wave at most ``count`` trials that nobody has, the likely good ones first."""
    free = [trial for trial in wave.trials if trial.id not in taken | state.busy]
    if count < len(free):
        shape = state.study.shape
        alike = [other for other in states if other is not state and other.study.shape == shape]
        free = priority.order(free, state, alike)
    return free[:count]


def _seconds_a_cost(states: Sequence[StudyState]) -> float:
    """Seconds that a unit of ``cost`` takes, from the studies that have been timed."""
    timed = sorted(s.seconds / s.cost() for s in states if s.seconds is not None)
    return timed[len(timed) // 2] if timed else 1.0
