"""What an observer is told of the packs that train, from what their workers say."""

from __future__ import annotations

from experiments.scheduling.events import PackFinished, PackStarted, Progress
from experiments.scheduling.jobs import Job, PackEnd, Started, Step
from experiments.scheduling.study_state import StudyState


def started(job: Job, word: Started) -> PackStarted:
    """A worker has taken the pack up."""
    return PackStarted(
        pack=word.pack,
        study=job.pack.study.id,
        trials=len(job.wanted),
        engine=word.engine,
        round=job.round,
        step=word.step,
    )


def progress(state: StudyState, word: Step) -> Progress:
    """Where the pack stands, with the best value of those that still train."""
    seen = [value for value in word.values if value is not None]
    best = min if state.study.targets[-1].lower_is_better else max
    return Progress(
        pack=word.pack,
        study=state.study.id,
        step=word.step,
        steps=word.steps,
        active=len(word.values),
        metric=best(seen) if seen else None,
    )


def finished(state: StudyState, word: PackEnd) -> PackFinished:
    """The worker is done with the pack."""
    return PackFinished(
        pack=word.pack,
        study=state.study.id,
        seconds=word.seconds,
        error=word.failure.message if word.failure else None,
    )
