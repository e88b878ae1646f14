"""Recorded trials whose rows are written again, amended; nothing is trained.

Results are grouped by optimizer, schedule and target: without this, a study whose optimizer got
another display name, or whose target was moved, would be two halves. And a search (its space, what
is fixed, its method, and its seed) decides which points are drawn: trials that an earlier search of
the same study recorded do not count for this one, unless it has drawn the very same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from experiments.plan import Study
from experiments.records.recorded import of_trials
from experiments.scheduling.study_state import StudyState
from results.counts import agreeing, count
from results.run_state.claims import Claims
from results.schema import SCHEMAS
from results.searches import current, rows_of
from results.store import Store
from results.targets.retarget import measured_steps
from results.targets.target import Target

_AT_ONCE = 10_000
"""Trials whose measurements are in memory together."""
_NAMED = ("optimizer", "schedule")
_OF_THE_COMMIT = ("experiment", "run", "revision", "time")
_CLAIM = "amend"
"""Used as a pack's id, so that only one driver at a time amends rows of a results folder."""


def rename(store: Store, studies: Sequence[Study]) -> int:
    """Write the trials of an experiment's ``studies`` whose optimizer or schedule has another
    display name now, with their measurements; how many."""
    experiment = studies[0].experiment
    labels = {
        study.id: {"optimizer": study.optimizer_label, "schedule": study.schedule_label}
        for study in studies
    }
    recorded = store.trials(experiment, ["study", "trial", *_NAMED])
    recorded = recorded[recorded["study"].isin(labels.keys())]
    differs = recorded["trial"].isna()
    for column in _NAMED:
        now = recorded["study"].map({study: named[column] for study, named in labels.items()})
        differs |= now.ne(recorded[column])
    trials = recorded["trial"][differs].tolist()
    if not trials:
        return 0
    # Beside it no compaction takes its measurements for those of a writer that died.
    info = {"experiment": experiment}
    claim = Claims(store.location).take(f"rename-{studies[0].id}", [], info=info)
    if claim is None:  # another driver does it
        return 0
    try:
        _write_renamed(store, experiment, trials, labels)
    finally:
        claim.release()
    return len(trials)


def _write_renamed(
    store: Store, experiment: str, trials: Sequence[str], labels: Mapping[str, Mapping[str, str]]
) -> None:
    fields = [field for field in SCHEMAS["measurements"] if field.name not in _OF_THE_COMMIT]
    for start in range(0, len(trials), _AT_ONCE):
        part = of_trials(store, trials[start : start + _AT_ONCE])
        frame = part.read_measurements([field.name for field in fields])
        store.commit_columns(
            experiment,
            measurements=pa.Table.from_pandas(frame, pa.schema(fields), preserve_index=False),
            trials=[
                {
                    **{name: value for name, value in row.items() if name not in _OF_THE_COMMIT},
                    **labels[row["study"]],
                }
                for row in part.trial_rows.to_pylist()
            ],
        )


def retarget(store: Store, experiment: str, target: Target, trials: Iterable[str]) -> int:
    """Write those of an experiment's ``trials`` that have another target with ``target``; how many.

    Args:
        trials: ids of trials that need no training under ``target``.
    """
    rows = [
        row
        for row in of_trials(store, trials).trial_rows.to_pylist()
        if row["experiment"] == experiment
        and (row["target_metric"], row["target_value"]) != (target.metric, target.value)
    ]
    if rows:
        trials = [row["trial"] for row in rows]
        steps = measured_steps(of_trials(store, trials), trials, target)
        store.amend([_retargeted(row, target, steps.loc[row["trial"]]) for row in rows])
    return len(rows)


def retarget_done(
    store: Store, states: Sequence[StudyState], of_other_targets: Collection[str]
) -> int:
    """``retarget`` those trials that need no training under their studies' target; how many.

    Not under an easier target where other studies of the experiment have other targets: steps to it
    follow from the measurements, and the row would no longer say that the trial was trained to the
    harder one. And not under a harder one where the search has not drawn the trial: of such rows
    those that missed both targets would count as trials of it, and those that reached the easier
    one would not.
    """
    done = {
        trial: trial in state
        for state in states
        for trial in state.records
        if trial in of_other_targets and not state.need(trial)
    }
    if not done:
        return 0
    study = states[0].study
    target = study.targets[-1]
    rows = store.trials(study.experiment, ["study", "trial", "target_metric", "target_value"])
    of_metric = rows["target_metric"].eq(target.metric)
    other = ~of_metric | rows["target_value"].ne(target.value)
    harder = {*rows["trial"][of_metric & target.hits(rows["target_value"])]}
    studies = store.studies(study.experiment)
    beside = {*studies["study"][current(studies)]} - {state.study.id for state in states}
    whole = not (other & rows["study"].isin(beside)).any()
    names = [trial for trial, drawn in done.items() if (whole if trial in harder else drawn)]
    return retarget(store, study.experiment, target, names)


def _retargeted(row: Mapping[str, Any], target: Target, steps: pd.Series) -> dict[str, Any]:
    """The row with another target; where there are no ``steps`` to it, its end is unchanged."""
    amended = {
        **row,
        "target_metric": target.metric,
        "target_value": target.value,
        "lower_is_better": target.lower_is_better,
        **dict.fromkeys(("steps_to_target", "last_miss")),
        "undecided_evaluations": int(steps["undecided_evaluations"]) or None,
    }
    if not pd.isna(steps["steps_to_target"]):
        hit = {name: steps[name] for name in ("steps_to_target", "last_miss")}
        return {**amended, **hit, "status": "COMPLETE", "stop_reason": "target"}
    return {**amended, "stop_reason": "budget"} if row["stop_reason"] == "target" else amended


def join_searches(store: Store, states: Sequence[StudyState]) -> None:
    """Write into the rows of trials that other searches have recorded, and that those of
    ``states`` have drawn too, that they belong to both.

    Trials that are being trained are left to a later call; the rows of those that will be
    trained again get it when they end.
    """
    shared = {
        trial.id: (state, trial.index)
        for state in states
        for trial, _ in state.recorded()
        if state.study.search.id not in state.searches_of(trial.id) and not state.need(trial.id)
    }
    if not shared:
        return
    claims = Claims(store.location)
    claimed = {trial for claim in claims.live() for trial in claim["trials"]}
    claim = claims.take(_CLAIM, sorted(shared.keys() - claimed))
    if claim is None:
        return
    try:
        rows = of_trials(store, shared.keys() - claimed).trial_rows.to_pylist()
        for row in rows:
            state, index = shared[row["trial"]]
            if row["search_id"] is None:  # written before searches had an id
                row |= {"search_id": state.study.search.id, "index": index}
            else:
                searches = rows_of(row["other_searches"])
                row["other_searches"] = {**searches, state.study.search.id: index}
        store.amend(rows)
    finally:
        claim.release()
    for trial, (state, index) in shared.items():
        if trial not in claimed:
            state.join(trial, state.study.search.id, index)


def notes_of_other_searches(states: Sequence[StudyState]) -> list[str]:
    """What a user should know of recorded trials that belong to other searches alone."""
    others = [of_other_searches(state) for state in states]
    trials, studies = sum(others), sum(1 for number in others if number)
    if not trials:
        return []
    return [
        f"{count(trials, 'recorded trial')} of {count(studies, 'study')} "
        f"{agreeing(trials, 'are')} of another search (another space, method or seed), and not "
        "counted; --search all of regimes, plot and report counts them."
    ]


def of_other_searches(state: StudyState) -> int:
    """How many recorded trials of a study belong to other searches alone.

    If the table does not depend on results, rows that later rounds will draw belong to this search
    too.
    """
    others = [trial for trial in state.records if trial not in state]
    if not others:
        return 0
    foreseen = state.study.draw(0, state.study.max_rows)
    drawn = {trial.id for trial, _ in state.recorded()} | {trial.id for trial in foreseen}
    return sum(
        trial not in drawn and state.study.search.id not in state.searches_of(trial)
        for trial in others
    )
