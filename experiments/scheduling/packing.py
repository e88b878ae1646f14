"""Puts trials of a study into a job for one worker group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from experiments.plan import Pack, Study, Trial
from experiments.scheduling.jobs import Job
from experiments.scheduling.rounds import Wave
from experiments.scheduling.study_state import StudyState


def make_job(
    state: StudyState,
    wave: Wave,
    trials: Sequence[Trial],
    *,
    device: str,
    wanted: Iterable[str] | None = None,
    pack: str | None = None,
) -> Job:
    """The job of a pack of ``trials`` in the open wave of a study.

    Args:
        wanted: those of them to record; all, unless given.
        pack: the id of the snapshot that it continues.
    """
    study = replace(state.study, keep=wave.keep)
    ids = [trial.id for trial in trials]
    chosen_ids = frozenset(ids if wanted is None else wanted)
    chosen = tuple(
        replace(
            t,
            round=wave.round,
            role="extension" if _is_more(t, study) else t.role,
            other_searches=_others(state, t),
        )
        for t in trials
    )
    return Job(
        pack=Pack(
            id=pack or hashlib.sha256(" ".join((study.id, *ids)).encode()).hexdigest()[:16],
            study=study,
            trials=chosen,
            engine=state.engine or "auto",  # type: ignore[arg-type]
            known=tuple(state.reached(but=ids)),
            keep_paused=wave.keep is not None and wave.keep != state.study.keep,
        ),
        round=wave.round,
        columns=state.columns,
        wanted=chosen_ids,
        before={t: r.run for t in chosen_ids if (r := state.records.get(t)) and r.run},
        resumes=pack is not None,
        device=device,
    )


def _others(state: StudyState, trial: Trial) -> dict[str, int]:
    """The other searches whose trial it is too, if it has been recorded."""
    if trial.id not in state.searches:
        return {}
    return {
        search: row
        for search, row in state.searches[trial.id].items()
        if search and search != state.study.search_id
    }


def _is_more(trial: Trial, study: Study) -> bool:
    """Whether it is drawn beyond the trials wanted, for one that was infeasible."""
    return trial.role == "search" and trial.index >= study.trials
