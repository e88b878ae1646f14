"""Whether the optimum of a study lies inside its search space, and if not, on which sides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from experiments.records.recorded import best_values
from experiments.scheduling import rounds
from experiments.scheduling.study_state import RangeEnd, StudyState
from results.counts import count
from results.schema import json_text
from results.store import Store

_END = {"low": "lower", "high": "upper"}
_LISTED = 6
_FURTHEST = 3
"""If no trial has reached the target, this many that came closest stand for the best."""


class Edge(Protocol):
    """The part of ``analysis.curves.edges.Edge`` that is used."""

    @property
    def dimension(self) -> str: ...
    @property
    def side(self) -> Literal["low", "high"]: ...
    @property
    def verdict(self) -> str: ...


class Judge(Protocol):
    """The functions of ``analysis`` that the interface hands down: see
    ``analysis.curves.edges``."""

    def edge(
        self,
        space: Mapping[str, Any],
        best: Mapping[str, Any],
        near_best: Sequence[Mapping[str, Any]] = (),
        *,
        budget_steps: float | None = None,
    ) -> Sequence[Edge]: ...

    def near_best(
        self, steps: Sequence[float | None], metaparameters: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]: ...


def edges(state: StudyState, judge: Judge, store: Store) -> list[Edge]:
    """The sides on which the best trials of a study lie on the edge of its space, best first.

    Of trials that have reached the target only those count whose steps are exact under dominated
    stopping, so that the answer does not depend on the order of training. Where none has reached
    it, the trials that came furthest stand for the best.
    """
    values = _near_best(state, judge) or _furthest(state, store)
    if not values:
        return []
    budget = float(state.study.schedule_steps)
    return list(judge.edge(state.search_space, values[0], values[1:], budget_steps=budget))


def _sentence(state: StudyState, edges: Sequence[Edge]) -> str:
    where = " and ".join(str(edge) for edge in edges)
    if any(edge.verdict == "edge" for edge in edges):
        return f"{state.label}: the optimum sits on the edge of its search space, {where}."
    return f"{state.label}: near-best trials lie on the edge of the search space, {where}."


def notes(states: Sequence[StudyState], judge: Judge, store: Store) -> list[str]:
    """A sentence for each of the first studies whose optimum lies on an edge, and how many more."""
    reached = (state for state in states if state.hits())
    every = [_sentence(state, at) for state in reached if (at := edges(state, judge, store))]
    more = len(every) - _LISTED
    rest = [f"{count(more, 'more study', 'have')} an optimum at an edge."] if more > 0 else []
    return [*every[:_LISTED], *rest]


def sides(state: StudyState, judge: Judge, store: Store) -> list[RangeEnd]:
    """The sides on which to enlarge the space; towards lower rates, if they are tuned and all
    trials diverged."""
    ended = [r for trial in state.drawn() if (r := state.records.get(trial.id))]
    if ended and all(record.status == "INFEASIBLE" for record in ended):
        return [("learning_rate", "low")] if "learning_rate" in state.search_space else []
    return list(dict.fromkeys((e.dimension, e.side) for e in edges(state, judge, store)))


def _near_best(state: StudyState, judge: Judge) -> Sequence[Mapping[str, Any]]:
    """Metaparameters of the best trial and of those nearly as good, the best first."""
    cutoff = rounds.cutoff(state.hits(), state.study.keep)
    steps: list[float | None] = []
    for trial in state.drawn():
        record = state.records.get(trial.id)
        hit = record.steps_to_target if record else None
        steps.append(hit if hit is None or cutoff is None or hit <= cutoff else None)
    return judge.near_best(steps, [trial.metaparameters for trial in state.drawn()])


def _furthest(state: StudyState, store: Store) -> Sequence[Mapping[str, Any]]:
    trials = {trial.id: trial for trial in state.drawn()}
    target = state.study.targets[-1]
    best = best_values(store, target, trials, by="trial")
    ranked = best.sort_values(ascending=target.lower_is_better, kind="stable")
    return [trials[str(name)].metaparameters for name in ranked.index[:_FURTHEST]]


def record(
    store: Store, planned_row: Mapping[str, Any], state: StudyState, where: Sequence[RangeEnd]
) -> str | None:
    """Write the enlarged space into the study's row; what to say of it, or ``None`` where an
    earlier run has recorded it, or further ones too."""
    space = json_text(dict(state.search_space))
    added = [[trial.id for trial in block.trials] for block in state.blocks]
    before = store.studies(state.study.experiment)
    for _, last in before[before["study"] == state.study.id].iloc[-1:].iterrows():
        text = last["enlargements"]
        known = json.loads(text) if isinstance(text, str) else []
        if known[: len(added)] == added and (known != added or last["search_space"] == space):
            return None
    store.add_studies([{**planned_row, "search_space": space, "enlargements": added}])
    ends = " and ".join(f"{name} at its {_END[side]} end" for name, side in where)
    more = count(len(added[-1]), "more trial")
    edge = f"the optimum lies on the edge of its search space, {ends}"
    return f"{state.label}: {edge}: {more} beyond it."
