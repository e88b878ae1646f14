"""What becomes of the trials that a failed pack leaves: which of them are trained again together.

An exception names its trial where models train one after the other; then the others go on. Where
it does not, and where a worker has died, run out of memory or hung, the pack is bisected: each half
goes on from the pack's snapshot, until the trial that is the cause is alone. One such trial in a
pack of n is isolated after at most 1 + log2(n) failures, and the others lose what they trained
since the snapshot. A node that was lost says nothing of the trials: the same pack goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.plan import Outcome, Study, Trial
from experiments.scheduling.failures import Failure
from experiments.scheduling.jobs import Job, SnapshotHeader
from experiments.scheduling.packs import pack_id
from experiments.scheduling.rounds import Wave
from experiments.scheduling.study_state import StudyState

Divide = Callable[[str, Sequence[str], Mapping[str, Sequence[str]]], Sequence[SnapshotHeader]]
"""``(pack, its trials, groups)``: makes of a pack's snapshot one for each group of its trials, by
the ids of their new packs; returns their headers, none where there is no snapshot."""

_DEATHS = 3
"""Deaths in a row after which a trial that trains alone is recorded as failed: a worker may have
been killed for reasons that have nothing to do with it."""
_LOSSES = 10
"""Nodes in a row that a pack may lose before its losses count as deaths."""
_BEYOND_SECONDS = 10.0
"""A pack that has trained for so long after the step at which it died did not die of its trials."""


_NOTES = {
    "raised": "a pack failed, its trials are run {}",
    "memory": "a pack needs more memory than there is, its trials are run {}",
    "hung": "a pack hung, its trials are run {}",
    "died": "a pack's worker died, its trials are run {}",
}


@dataclass
class _History:
    """How a pack's trials have failed so far, in this pack and those that it comes from."""

    deaths: int = 0
    losses: int = 0
    step: int = 0
    """The last step that was reported before the last death."""
    beyond: float | None = None
    """When a later step was first reported (a monotonic clock)."""
    patience: float | None = None
    """Seconds without progress after which it counted as hung."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Trials of a failed pack without a snapshot: they begin again, together."""

    state: StudyState
    trials: tuple[Trial, ...]


@dataclass(frozen=True, kw_only=True)
class Next:
    """What follows a failure."""

    note: str
    """A sentence about it, for the user."""
    culprit: Trial | None = None
    """The trial that failed for good, if it is not recorded yet."""


@dataclass
class Recovery:
    """Decides what a failed pack's trials do next, and holds what is to be trained again.

    Args:
        divide: see ``Divide``.
        snapshots: those to continue from, tried before anything else of their study.
    """

    divide: Divide
    snapshots: list[SnapshotHeader] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    _histories: dict[str, _History] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)

    def progress(self, pack: str, step: int) -> None:
        """Take in a pack's step: one that gets past its last death is not under suspicion."""
        history = self._histories.get(pack)
        if history is None:
            return
        if step <= history.step:
            history.beyond = None
        elif history.beyond is None:
            history.beyond = time.monotonic()
        elif time.monotonic() - history.beyond > _BEYOND_SECONDS:
            del self._histories[pack]

    def deaths(self, pack: str) -> int:
        """How often the trials of a pack have failed in a row."""
        return self._histories.get(pack, _History()).deaths

    def suspected(self, pack: str) -> bool:
        """Whether a trial of the pack may be the cause of a failure: then no other trials join."""
        return pack in self._histories

    def patience(self, pack: str) -> float | None:
        """Seconds without progress after which the pack has counted as hung before."""
        return self._histories.get(pack, _History()).patience

    def largest(self, study: str, size: int) -> int:
        """Most trials of a pack of the study: less than ``size`` once its memory was exhausted."""
        return min(size, self._largest.get(study, size))

    def part(
        self, may_start: Callable[[StudyState], bool], taken: Collection[str]
    ) -> tuple[StudyState, Wave, list[Trial]] | None:
        """The next part that is still missing, none of whose trials are ``taken``."""
        for part in list(self.parts):
            state, wave = part.state, part.state.wave()
            missing = {trial.id for trial in wave.trials} if wave is not None else set()
            trials = [trial for trial in part.trials if trial.id in missing]
            if wave is None or not trials:
                self.parts.remove(part)
            elif may_start(state) and not any(trial.id in taken for trial in trials):
                self.parts.remove(part)
                return state, wave, trials
        return None

    def snapshot(
        self,
        states: Mapping[str, StudyState],
        may_start: Callable[[StudyState], bool],
        taken: Collection[str],
    ) -> tuple[StudyState, Wave, list[Trial], set[str], SnapshotHeader] | None:
        """The next snapshot to continue from, all trials of its pack, and those to record."""
        for header in list(self.snapshots):
            state, active = states.get(header.study), set(header.active)
            if state is None or active & state.busy or active.intersection(taken):
                continue
            if not may_start(state):
                continue
            wave, trials = state.wave(), state.find(header.trials)
            self.snapshots.remove(header)
            wanted = {trial.id for trial in wave.trials} & active if wave is not None else set()
            if wave is not None and wanted and len(trials) == len(header.trials):
                return state, wave, trials, wanted, header
        return None

    def apart(self) -> set[str]:
        """The trials that wait here."""
        waiting = {trial.id for part in self.parts for trial in part.trials}
        return waiting.union(*(header.active for header in self.snapshots))

    def follow(
        self,
        job: Job,
        state: StudyState,
        failure: Failure,
        left: Sequence[Trial],
        *,
        step: int,
        proven: bool,
    ) -> Next:
        """What the trials that are ``left`` of a failed pack do next.

        Args:
            step: the last step that the pack has reported.
            proven: whether trials of this kind have been seen to train.
        """
        failed = f"a trial failed: {failure.message}"
        history = self._histories.pop(job.pack.id, _History())
        if failure.cause == "memory":
            self._bound(state.study.id, len(left))
        if not left:
            return Next(note=failed)
        if failure.trial not in (None, *(trial.id for trial in left)):  # recorded: the only cause
            self._groups(job, state, [left], _History())
            return Next(note=failed)
        if failure.cause == "raised" and len(left) == 1:
            return Next(note=failed, culprit=left[0])
        if failure.cause == "raised" and not proven:
            # Code that has never run: each trial alone shows whether it ever can.
            self._divided(job, {})
            self.parts += [Part(state=state, trials=(trial,)) for trial in left]
            note = _NOTES["raised"].format("one by one")
            return Next(note=f"{note}: {failure.message}")
        elsewhere = f"a pack is trained on by another worker: {failure.message}"
        if failure.cause == "lost" and history.losses < _LOSSES:
            history.losses += 1
            self._groups(job, state, [left], history)
            return Next(note=elsewhere)
        history.deaths, history.step, history.beyond = history.deaths + failure.deaths, step, None
        history.patience = failure.patience or history.patience
        if len(left) == 1:
            if failure.cause == "hung" or history.deaths >= _DEATHS:
                return Next(note=failed, culprit=left[0])
            self._groups(job, state, [left], history)
            return Next(note=elsewhere)
        half = (len(left) + 1) // 2
        note = _NOTES.get(failure.cause, _NOTES["died"]).format("in halves")
        self._groups(job, state, [left[:half], left[half:]], history)
        return Next(note=f"{note}: {failure.message}")

    def _bound(self, study: str, count: int) -> None:
        """Packs of half the size, unless a single trial needs more memory than there is."""
        if count > 1:
            self._largest[study] = max(1, count // 2)
        else:
            self._largest.pop(study, None)

    def _groups(
        self, job: Job, state: StudyState, groups: Sequence[Sequence[Trial]], history: _History
    ) -> None:
        """Train each group as a pack: from the snapshot, where there is one."""
        study = state.study.id
        ids = [[trial.id for trial in group] for group in groups]
        names = [pack_id(study, group) for group in ids]
        for name in names if history != _History() else ():
            self._histories[name] = _History(**vars(history))
        headers = self._divided(job, dict(zip(names, ids, strict=True)))
        self.snapshots = [*headers, *self.snapshots]
        if not headers:
            self.parts += [Part(state=state, trials=tuple(group)) for group in groups]

    def _divided(self, job: Job, groups: Mapping[str, Sequence[str]]) -> list[SnapshotHeader]:
        return list(self.divide(job.pack.id, [t.id for t in job.pack.trials], groups))


def failed_outcome(study: Study, trial: str, failure: Failure, step: int) -> Outcome:
    """How a trial ended that failed at about this step."""
    return Outcome(
        trial=trial,
        status="INCOMPLETE",
        stop_reason="error",
        steps_run=step,
        examples_run=study.batches.examples(step),
        error=failure.traceback or failure.message,
    )
