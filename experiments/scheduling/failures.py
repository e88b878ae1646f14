"""What becomes of the trials that a failed pack leaves, in one table.

An exception names its trial where models train one after the other; then the others go on. Where
it does not, and where a worker has died, run out of memory or hung, the pack is bisected: each half
goes on from the pack's snapshot, until the trial that is the cause is alone. One such trial in a
pack of n is isolated after at most 1 + log2(n) failures, and the others lose what they trained
since the snapshot. A node that was lost says nothing of the trials: the same pack goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from experiments.plan import Outcome, Study, Trial
from experiments.scheduling.messages import Assignment, Cause, Failure, SnapshotHeader
from experiments.scheduling.packs import pack_id
from experiments.scheduling.rounds import Wave
from experiments.scheduling.study_state import StudyState

Divide = Callable[[str, Sequence[str], Mapping[str, Sequence[str]]], Sequence[SnapshotHeader]]
"""``(pack, its trials, groups)``: makes of a pack's snapshot one for each group of its trials, by
the ids of their new packs; returns their headers, none where there is no snapshot."""

_Then = Literal["halves", "again", "once more", "error row"]
_TABLE: Mapping[Cause, tuple[str, _Then, _Then]] = {
    "raised": ("a pack failed", "halves", "error row"),
    "memory": ("a pack needs more memory than there is", "halves", "error row"),
    "hung": ("a pack hung", "halves", "once more"),
    "died": ("a pack's worker died", "halves", "once more"),
    "lost": ("", "again", "again"),
}
"""What has happened, in words; what a pack of several does then; what a trial does that is alone.

Besides, a clear error ends the sweep, and so does the first exception of a shape of which nothing
has trained yet: code that has never run. Out of memory it is the first of a trial alone.
"""
_DEATHS = 2
"""Deaths in a row after which a trial that trains alone is recorded as failed: a worker may have
been killed for reasons that have nothing to do with it."""
_LOSSES = 10
"""Nodes that a pack loses in a row for which one death is counted."""
_BEYOND_SECONDS = 10.0
"""A pack that has trained for so long after the step at which it died did not die of its trials."""


@dataclass
class _History:
    """How a pack's trials have failed so far, in this pack and those that it comes from."""

    deaths: int = 0
    losses: int = 0
    step: int = 0
    """The last step that was reported before the last failure."""
    beyond: float | None = None
    """When a later step was first reported (a monotonic clock)."""


@dataclass(frozen=True, kw_only=True)
class Next:
    """What follows a failure, besides what waits."""

    note: str = ""
    """A sentence about it, for the user."""
    culprit: Trial | None = None
    """The trial that failed for good, if it is not recorded yet."""
    ends: bool = False
    """Whether the sweep ends with it."""


@dataclass
class Failures:
    """Decides what a failed pack's trials do next, and holds those that wait to be trained again.

    Args:
        divide: see ``Divide``.
        waiting: packs to continue, tried before anything else of their study.
    """

    divide: Divide
    waiting: list[SnapshotHeader]
    proven: set[str] = field(default_factory=set)
    """Shapes of which a pack has been seen to train."""
    last: Failure | None = None
    """The last one for which a trial was recorded as failed, or the sweep ended."""
    _succeeded: bool = False
    _histories: dict[str, _History] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)

    def succeed(self, shape: str) -> None:
        """Note that a trial of this shape has ended well."""
        self.proven.add(shape)
        self._succeeded = True

    def hopeless(self) -> Failure | None:
        """The last failure, if no trial of any shape has ended well."""
        return None if self._succeeded else self.last

    def progress(self, pack: str, step: int) -> None:
        """Take in a pack's step: one that gets past its last failure is not under suspicion."""
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
        """How often the workers of a pack's trials have died in a row."""
        return self._histories.get(pack, _History()).deaths

    def suspected(self, pack: str) -> bool:
        """Whether a trial of the pack may be the cause of a failure: then no other trials join."""
        return pack in self._histories

    def largest(self, study: str, size: int) -> int:
        """Most trials of a pack of the study: less than ``size`` once its memory was exhausted."""
        return min(size, self._largest.get(study, size))

    def waiting_trials(self) -> set[str]:
        """The trials that wait here."""
        return {trial for header in self.waiting for trial in header.active}

    def next_waiting(
        self,
        states: Mapping[str, StudyState],
        may_start: Callable[[StudyState], bool],
        taken: Collection[str],
    ) -> tuple[StudyState, Wave, list[Trial], set[str], SnapshotHeader] | None:
        """The next pack to continue, all of its trials, and those of them to record."""
        for header in list(self.waiting):
            state, active = states.get(header.study), set(header.active)
            if state is None or active & state.busy or active.intersection(taken):
                continue
            if not may_start(state):
                continue
            wave, trials = state.wave(), state.find(header.trials)
            self.waiting.remove(header)
            wanted = {trial.id for trial in wave.trials} & active if wave is not None else set()
            if wave is not None and wanted and len(trials) == len(header.trials):
                return state, wave, trials, wanted, header
        return None

    def after(
        self, assignment: Assignment, shape: str, failure: Failure, left: Sequence[Trial], step: int
    ) -> Next:
        """What the trials that are ``left`` of a failed pack do next.

        Args:
            shape: of its study.
            step: the last that was reported of it.
        """
        cause, alone, study = failure.cause, len(left) == 1, assignment.pack.study.id
        history = self._histories.pop(assignment.pack.id, _History())
        never_run = cause == "raised" or (cause == "memory" and failure.trial is not None)
        if failure.clear or (never_run and shape not in self.proven):
            unnamed = left and failure.trial is None and not failure.clear
            return Next(ends=True, culprit=left[0] if unnamed else None)
        if cause == "memory" and len(left) > 1:
            self._largest[study] = len(left) // 2
        elif cause == "memory":  # a single trial needs more than there is
            self._largest.pop(study, None)
        failed = f"a trial failed: {failure.message}"
        if not left or failure.trial not in (None, *(trial.id for trial in left)):  # the only cause
            self._wait(assignment, [left] if left else [], _History())
            return Next(note=failed)
        if cause == "lost":
            history.losses += 1
            cause = "died" if history.losses % _LOSSES == 0 else cause
        if cause != "lost":
            history.step, history.beyond = step, None
        if cause in ("died", "hung"):
            history.deaths += failure.deaths
        what, several, single = _TABLE[cause]
        then = single if alone else several
        if then == "error row" or (then == "once more" and history.deaths >= _DEATHS):
            return Next(note=failed, culprit=left[0])
        if then == "halves":
            half = (len(left) + 1) // 2
            self._wait(assignment, [left[:half], left[half:]], history)
            return Next(note=f"{what}, its trials are run in halves: {failure.message}")
        self._wait(assignment, [left], history)
        return Next(note=f"a pack is trained on by another worker: {failure.message}")

    def _wait(
        self, assignment: Assignment, groups: Sequence[Sequence[Trial]], history: _History
    ) -> None:
        """Let each group wait as a pack: from the snapshot, where there is one."""
        pack = assignment.pack
        ids = [[trial.id for trial in group] for group in groups]
        packs = {pack_id(pack.study.id, group): group for group in ids}
        for name in packs if history != _History() else ():
            self._histories[name] = replace(history)
        headers = self.divide(pack.id, [trial.id for trial in pack.trials], packs)
        anew = [assignment.without_state(name, group, group) for name, group in packs.items()]
        self.waiting = [*(headers or anew), *self.waiting]


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
