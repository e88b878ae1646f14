"""Which trials of a wave are likely good: they run first, so that dominated stopping bites early.

A guess alone: the order in which a fixed table is trained changes what it costs, never which
trials it holds nor which are the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.plan import Trial, Value
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from experiments.search.space import Dimension

_WIDTH = 0.12
"""Distance, in the search space's unit interval, over which one trial tells of another."""
_FADE = 0.5
"""How much less a trial tells of one whose batch size is twice as large, or half."""
_MISSED = 2.0
"""A trial that never reached the target counts as so many e-folds over its study's least."""


@dataclass(frozen=True)
class _Seen:
    """What one study has shown: places in the unit cube, (n, d), and log steps over its least."""

    places: np.ndarray
    scores: np.ndarray
    batch_size: int


def order(trials: Sequence[Trial], state: StudyState, others: Sequence[StudyState]) -> list[Trial]:
    """``trials`` of a study, the likeliest first; as they are where nothing is known.

    Each is judged by the trials that have ended near it, in its own study and in ``others`` of its
    shape: the mean of their log steps over their study's least, weighted by how near they are in
    the search space and in log batch size.
    """
    space = _space(state)
    seen = [s for one in (state, *others) if (s := _seen(one, space)) is not None]
    if not seen or not space:
        return list(trials)
    places = _places(trials, space)
    weight = np.full(len(trials), 1e-9)
    total = np.full(len(trials), 1e-9) * _MISSED
    for one in seen:
        octaves = abs(math.log2(one.batch_size / state.study.batch_size))
        apart = ((places[:, None, :] - one.places[None, :, :]) ** 2).sum(axis=2)
        near = np.exp(-apart / (2 * _WIDTH**2)) * _FADE**octaves
        weight += near.sum(axis=1)
        total += near @ one.scores
    ranks = np.argsort(total / weight, kind="stable")
    return [trials[i] for i in ranks]


def _space(state: StudyState) -> dict[str, Dimension]:
    """The dimensions that have a scale."""
    found = {}
    for name, notation in dict(state.search_space or {}).items():
        ((scale, values),) = notation.items()
        if scale != "discrete":
            found[name] = Dimension.parse(scale, values)
    return found


def _seen(state: StudyState, space: Mapping[str, Dimension]) -> _Seen | None:
    ended = [(t, state.records[t.id]) for t in state.searched() if t.id in state.records]
    least = min((r.steps_to_target for _, r in ended if r.steps_to_target), default=None)
    if least is None:
        return None
    scores = np.array([_score(record, least) for _, record in ended])
    places = _places([trial for trial, _ in ended], space)
    return _Seen(places=places, scores=scores, batch_size=state.study.batch_size)


def _score(record: Record, least: int) -> float:
    if record.steps_to_target is None:
        return _MISSED
    return min(_MISSED, math.log(record.steps_to_target / least))


def _places(trials: Sequence[Trial], space: Mapping[str, Dimension]) -> np.ndarray:
    rows = [[_unit(d, t.metaparameters.get(n)) for n, d in space.items()] for t in trials]
    return np.array(rows, dtype=float).reshape(len(trials), len(space))


def _unit(dimension: Dimension, value: Value | None) -> float:
    """Where a value lies; a share of the budget, which a trial holds in steps, tells nothing."""
    return 0.5 if value is None else dimension.unit(value)
