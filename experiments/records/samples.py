"""Which recorded trials are the sample of a study's present search.

A search (its space, what is fixed, its method, and its seed) decides which points are drawn. Trials
that an earlier search of the same study recorded are none of this one's, unless it has drawn the
very same: those are amended to belong to both, and are not trained again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.plan import Trial
from experiments.records.recorded import some
from experiments.scheduling.study_state import StudyState
from results.run_state.claims import Claims
from results.searches import rows_of
from results.store import Store

_CLAIM = "amend"
"""In the place of a pack's id: one driver at a time amends rows of a results folder."""


def adopt(store: Store, states: Sequence[StudyState]) -> int:
    """Write into the rows of trials that other searches have recorded, and that those of
    ``states`` have drawn too, that they belong to both; how many.

    Trials that somebody trains at present are left to a later call, and those that are to be
    trained again say it themselves when they end.
    """
    wanted = {
        trial.id: (state.study.search_id, trial.index)
        for state in states
        for trial in _drawn(state)
        if state.study.search_id not in state.searches_of(trial.id) and not state.need(trial.id)
    }
    if not wanted:
        return 0
    claims = Claims(store.location)
    taken = {trial for claim in claims.live() for trial in claim["trials"]}
    claim = claims.take(_CLAIM, sorted(wanted.keys() - taken))
    if claim is None:
        return 0
    try:
        rows = some(store, wanted.keys() - taken).trial_rows.to_pylist()
        store.amend([_belonging(row, *wanted[row["trial"]]) for row in rows])
    finally:
        claim.release()
    for state in states:
        for trial in _drawn(state):
            if trial.id in wanted and trial.id not in taken:
                state.join(trial.id, *wanted[trial.id])
    return len(rows)


def left_out(state: StudyState) -> int:
    """How many recorded trials of a study belong to other searches alone.

    Of a table that does not depend on how trials come out, rows that later rounds will draw are
    among this search's.
    """
    others = [trial for trial in state.records if trial not in state]
    if not others:
        return 0
    mine = {trial.id for trial in _drawn(state)} | {trial.id for trial in state.foreseen()}
    return sum(
        trial not in mine and state.study.search_id not in state.searches_of(trial)
        for trial in others
    )


def _drawn(state: StudyState) -> Iterator[Trial]:
    """The recorded trials among those that the search has come to, its repeats too."""
    best = state.best() if state.study.repeats else None
    for trial in (*state.searched(), *(state.plan.repeats(best) if best else ())):
        if trial.id in state.records:
            yield trial


def _belonging(row: Mapping[str, Any], search: str, index: int) -> dict[str, Any]:
    if row["search_id"] is None:  # written before searches had an id
        return {**row, "search_id": search, "index": index}
    return {**row, "other_searches": {**rows_of(row["other_searches"]), search: index}}
