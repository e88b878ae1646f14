"""The next pack: which study gets it, which of its trials, in which order, and its assignment.

Pure decisions on the state of the studies. In a study the most promising trials run first, so that
dominated stopping begins early. The order in which a fixed table is trained changes only the cost,
never which trials it holds or which of them are best.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from experiments.plan import Pack, Trial
from experiments.scheduling.messages import Assignment
from experiments.scheduling.rounds import Wave
from experiments.scheduling.study_state import StudyState
from experiments.search.space import Dimension, Value

_SMALL_PACK = 4
"""A wave is not cut into packs below this size to occupy more workers."""
_WIDTH = 0.12
"""Distance, in the search space's unit interval, over which one trial predicts another."""
_FADE = 0.5
"""Factor on the weight of a trial whose batch size is twice as large, or half."""
_MOST_RANKED, _MOST_EVIDENCE = 256, 128
"""Free trials of a wave that are ranked, and ended trials of a study that they are judged by: the
first of each, in their order. Beyond that ranking them costs more than it saves."""
_MISSED = 2.0
"""A trial that missed the target counts as this many e-folds above its study's least steps."""


@dataclass
class Running:
    """A pack that a worker trains."""

    assignment: Assignment
    state: StudyState
    active: set[str]
    """Its trials that have not ended."""
    step: int = 0
    """The last step that it reported."""
    before_news: int | None = None
    """How many trials it had before the changes that ``Dispatcher.news`` has not handed on."""

    def begin(self, engine: str) -> None:
        """A worker has begun with it, perhaps the successor of one that has died."""
        pack = replace(self.assignment.pack, engine=engine)  # type: ignore[arg-type]
        self.assignment = replace(self.assignment, pack=pack)
        self.active = set(self.assignment.wanted & self.state.busy)
        self.state.engine = engine

    def change(self, assignment: Assignment) -> None:
        if self.before_news is None:
            self.before_news = len(self.assignment.pack.trials)
        self.assignment = assignment


def choose(
    states: Sequence[StudyState],
    *,
    may_start: Callable[[StudyState, Wave], bool],
    proven: Collection[str],
    taken: set[str],
    slots: int,
    size: int,
) -> tuple[StudyState, Wave, Sequence[Trial]] | None:
    """The study, its wave and at most ``size`` trials for the next pack; ``None``: there is none.

    Breadth first: the lowest round first. Of a shape that has not run yet the cheapest study is
    first, since it shows soonest whether it can; else the longest, so that workers end together.

    Args:
        proven: shapes of which a pack has trained.
        taken: trials that are trained or waiting elsewhere.
    """
    trial_seconds = [state.remaining().seconds_per_trial for state in states]
    timed = sorted(s / state.cost for state, s in zip(states, trial_seconds, strict=True) if s)
    seconds_per_cost = timed[len(timed) // 2] if timed else 1.0
    best: tuple[tuple[bool, int, float], StudyState, Wave] | None = None
    for state, each in zip(states, trial_seconds, strict=True):
        wave = state.wave()
        if wave is None or not may_start(state, wave):
            continue
        seconds = (each or state.cost * seconds_per_cost) * len(wave.trials)
        untried = state.shape not in proven
        rank = (not untried, wave.round, seconds if untried else -seconds)
        # The rank first: a wave may be long.
        if (best is None or rank < best[0]) and _any_free(state, wave, taken):
            best = (rank, state, wave)
    if best is None:
        return None
    _, state, wave = best
    parts = max(1, slots // len(states))
    count = min(size, max(_SMALL_PACK, -(-len(wave.trials) // parts)))
    return state, wave, pick(state, wave, states, taken=taken, count=count)


def _any_free(state: StudyState, wave: Wave, taken: set[str]) -> bool:
    if len(state.busy) + len(taken) < len(wave.trials):
        return True
    return not all(trial.id in taken or trial.id in state.busy for trial in wave.trials)


def pick(
    state: StudyState, wave: Wave, states: Sequence[StudyState], *, taken: set[str], count: int
) -> Sequence[Trial]:
    """Of a study's wave at most ``count`` free trials, the most promising first."""
    busy = taken | state.busy
    free = [trial for trial in wave.trials if trial.id not in busy]
    if count < len(free):
        alike = [o for o in states if o is not state and o.shape == state.shape]
        free = by_priority(free[: max(count, _MOST_RANKED)], state, alike)
    return free[:count]


def by_priority(
    trials: Sequence[Trial], state: StudyState, others: Sequence[StudyState]
) -> list[Trial]:
    """``trials`` of a study, the most promising first; in their order where nothing has ended.

    Each is judged by the trials that have ended near it, in its own study and in ``others`` of its
    shape: the mean of their log steps over their study's least, weighted by how near they are in
    the search space and in log batch size.
    """
    space = _scaled_dimensions(state)
    evidence = [e for each in (state, *others) if (e := _evidence(each, space)) is not None]
    if not evidence or not space:
        return list(trials)
    places = _places(trials, space)
    weight = np.full(len(trials), 1e-9)
    total = np.full(len(trials), 1e-9) * _MISSED
    for study in evidence:
        octaves = abs(math.log2(study.batch_size / state.study.batch_size))
        apart = np.zeros((len(places), len(study.places)))
        for free, ended in zip(places.T, study.places.T, strict=True):
            apart += (free[:, None] - ended[None, :]) ** 2
        near = np.exp(-apart / (2 * _WIDTH**2)) * _FADE**octaves
        weight += near.sum(axis=1)
        total += near @ study.scores
    ranks = np.argsort(total / weight, kind="stable")
    return [trials[i] for i in ranks]


@dataclass(frozen=True)
class _Evidence:
    """A study's ended trials: places in the unit cube, (n, d), and log steps over its least."""

    places: np.ndarray
    scores: np.ndarray
    batch_size: int


def _scaled_dimensions(state: StudyState) -> dict[str, Dimension]:
    dimensions = {}
    for name, notation in dict(state.search_space or {}).items():
        ((scale, values),) = notation.items()
        if scale != "discrete":
            dimensions[name] = Dimension.parse(scale, values)
    return dimensions


def _evidence(state: StudyState, space: Mapping[str, Dimension]) -> _Evidence | None:
    """Of a study, in terms of a space; computed again once further trials have ended."""
    name = repr(space)
    version, evidence = state.evidence.get(name, (-1, None))
    if version != state.version:
        evidence = _computed_evidence(state, space)
        state.evidence[name] = state.version, evidence
    return evidence


def _computed_evidence(state: StudyState, space: Mapping[str, Dimension]) -> _Evidence | None:
    hits = state.hits()
    least = next((steps for steps in hits if steps), None)
    if least is None:
        return None
    every = ((t, state.records[t.id]) for t in state.drawn() if t.id in state.records)
    ended = list(islice(every, _MOST_EVIDENCE))
    steps = (record.steps_to_target for _, record in ended)
    scores = [_MISSED if hit is None else min(_MISSED, math.log(hit / least)) for hit in steps]
    places = _places([trial for trial, _ in ended], space)
    return _Evidence(places=places, scores=np.array(scores), batch_size=state.study.batch_size)


def _places(trials: Sequence[Trial], space: Mapping[str, Dimension]) -> np.ndarray:
    rows = [[_unit(d, t.metaparameters.get(n)) for n, d in space.items()] for t in trials]
    return np.array(rows, dtype=float).reshape(len(trials), len(space))


def _unit(dimension: Dimension, value: Value | None) -> float:
    """The place of a value; the middle for a share of the budget, which a trial has in steps."""
    return 0.5 if value is None else dimension.unit(value)


def assign(
    state: StudyState,
    wave: Wave,
    trials: Sequence[Trial],
    *,
    device: str,
    wanted: Iterable[str] | None = None,
    pack: str | None = None,
    size: int | None = None,
) -> Assignment:
    """The assignment of a pack of ``trials`` in the open wave of a study.

    Args:
        wanted: those of them to record; all, unless given.
        pack: the id of the snapshot that it continues.
        size: see ``Assignment``.
    """
    study = replace(state.study, keep=wave.keep)
    ids = [trial.id for trial in trials]
    wanted_ids = frozenset(ids if wanted is None else wanted)
    return Assignment(
        pack=Pack(
            id=pack or pack_id(study.id, ids),
            study=study,
            trials=tuple(_in_wave(state, wave, trial) for trial in trials),
            engine=state.engine or "auto",  # type: ignore[arg-type]
            known=tuple(state.hits(but=ids)),
            keep_paused=wave.keep is not None and wave.keep != state.study.keep,
        ),
        round=wave.round,
        columns=state.columns,
        wanted=wanted_ids,
        before={t: r.run for t in wanted_ids if (r := state.records.get(t)) and r.run},
        size=size,
        device=device,
    )


def pack_id(study: str, trials: Sequence[str]) -> str:
    """The id of a pack of these trials of a study."""
    return hashlib.sha256(" ".join((study, *trials)).encode()).hexdigest()[:16]


def _in_wave(state: StudyState, wave: Wave, trial: Trial) -> Trial:
    """The trial with its round, its role there, and the other searches that have recorded it."""
    beyond = trial.role == "search" and trial.index >= state.study.trials
    searches = state.searches.get(trial.id, {})
    others = {s: row for s, row in searches.items() if s and s != state.study.search.id}
    role = "extension" if beyond else trial.role
    return replace(trial, round=wave.round, role=role, other_searches=others)
