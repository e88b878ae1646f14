"""Runs one pack on one worker group: claim, train, commit, snapshot, and say how it goes.

A pack whose job names a size is refilled. When trials have ended, rank 0 tells the driver that
there is room (``Offer``); the answer comes with what the driver asks (``Control.more``): more
trials of the study, or none. Rank 0 claims them, all ranks hear of them at the same look, and they
join the training. From then on the pack's snapshots list them. What is given to a pack that has
ended meanwhile, or whose worker dies before a snapshot, was never trained, and is missing as
before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from experiments.encoding import MalformedError
from experiments.execution.heartbeat import At, Heartbeat, Pace
from experiments.execution.ledger import Ledger
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Measurement, Outcome, Pack, Trial
from experiments.records.rows import (
    device_name,
    effective_learning_rate,
    measurement_row,
    trial_row,
)
from experiments.records.settings import settings_hash
from experiments.scheduling import saved
from experiments.scheduling.failures import Failure
from experiments.scheduling.jobs import Channel, Ended, Job, NotKept, PackEnd, Started
from experiments.scheduling.refill import Refill
from results.errors import ResultsError

__all__ = ["MakeTrainer", "Pace", "Trainer", "run_pack", "training"]


class Trainer(Protocol):
    """What trains a pack: ``Training``, or a stand-in in tests."""

    engine: str
    paused: dict[str, bytes]
    not_kept: str | None

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def active(self) -> tuple[str, ...]: ...
    def know(self, steps_to_target: Iterable[int]) -> None: ...
    def add(self, trials: Sequence[Trial]) -> None: ...
    def resume(self, paused: Mapping[str, bytes]) -> Collection[str]: ...
    def run(self, should_stop: Callable[[], bool]) -> Iterator[list[Measurement | Outcome]]: ...
    def snapshot(self) -> bytes | None: ...


MakeTrainer = Callable[..., Trainer]
"""``(pack, *, device, group, snapshot) -> Trainer``"""


def training(pack: Pack, **how: Any) -> Trainer:
    """The real trainer (torch is imported here, not before)."""
    from experiments.training.pack_training import Training

    return Training(pack, **how)


def run_pack(
    job: Job,
    ledger: Ledger,
    wire: Channel,
    *,
    group: Ranks = SOLO,
    trainer: MakeTrainer = training,
    pace: Pace | None = None,
) -> PackEnd:
    """Train a pack to its end, until the wire asks to stop, or until its claim is lost.

    Finished trials are committed at the end and at least every ``pace.commit`` seconds; what still
    trains is kept in a snapshot, which a stop renews and the end deletes. An exception of the
    pack's own code ends it: what had finished is committed, and a pack of one records it as an
    error. Every rank of a group calls this; rank 0 alone writes.
    """
    began = time.monotonic()
    first, study = group.rank == 0, job.pack.study
    info = {"experiment": study.experiment, "study": study.id, "round": job.round}
    taken = (
        first
        and bool(job.wanted)
        and ledger.take(job.pack.id, sorted(job.wanted), info, job.before)
    )
    if not job.wanted:  # its predecessor died after the last commit
        end = PackEnd(pack=job.pack.id, end="done")
    elif group.agree(taken):
        run = _Run(job, ledger, wire, group, trainer, pace or Pace())
        try:
            end = run.train(ledger.load(job.pack.id) if first else None)
        finally:
            run.close()
    else:
        end = PackEnd(pack=job.pack.id, end="taken")
    end = replace(end, seconds=time.monotonic() - began)
    if first:
        wire.tell(end)
    return end


class _Run:
    """One pack on one rank, from its claim to its release."""

    def __init__(
        self,
        job: Job,
        ledger: Ledger,
        wire: Channel,
        group: Ranks,
        trainer: MakeTrainer,
        pace: Pace,
    ) -> None:
        self.job, self.ledger, self.wire = job, ledger, wire
        self.group, self.trainer, self.pace = group, trainer, pace
        self.first = group.rank == 0
        self.trials = {trial.id: trial for trial in job.pack.trials}
        self.wanted = set(job.wanted)
        self.refill = Refill(job, ledger, wire)
        self.points: dict[str, list[Measurement]] = {}
        self.finished: list[Outcome] = []
        self.paused: dict[str, bytes] = {}
        """Of those, what the trials that are paused need to go on."""
        self.engine: str = job.pack.engine
        self.at = At()
        self.told = 0
        self.not_kept_reported = False
        self.heartbeat = (
            Heartbeat(job.pack.id, ledger, wire, pace, self.progress) if self.first else None
        )

    def train(self, data: bytes | None) -> PackEnd:
        try:
            training, began = self._begin(self.group.agree(data))
            self.engine, step = training.engine, training.step
            self._resume(training, began)
            if self.first:
                self.wire.tell(Started(pack=self.job.pack.id, engine=self.engine, step=step))
            self._loop(training)
            return self._finished(training)
        # The user's own, or ours about what is the user's. A worker that ended itself for them
        # would be missed as one that died.
        except (Exception, SystemExit) as error:
            return self._failed(error)

    def _begin(self, data: bytes | None) -> tuple[Trainer, Sequence[Trial]]:
        """The training, from a snapshot where there is one, and the trials that begin with it.

        Trials that joined after the snapshot are the pack's last ones. Without a snapshot of this
        very pack, or where it cannot be read, all its trials begin together.
        """
        pack = self.job.pack
        how: dict[str, Any] = {"device": self.job.device, "group": self.group}
        snapshot = saved.unpack_snapshot(data) if data is not None else None
        if snapshot is not None:
            header, body = snapshot
            first = tuple(self.trials)[: len(header.trials)]
            if header.settings == settings_hash(pack.study) and header.trials == first:
                later = pack.trials[len(first) :]
                before = replace(pack, trials=pack.trials[: len(first)])
                with suppress(MalformedError):
                    held, points = saved.decode_body(body)
                    training = self.trainer(before, snapshot=held, **how)
                    self.points = points
                    if later:
                        training.add(later)
                    return training, later
        return self.trainer(pack, snapshot=None, **how), pack.trials

    def _finished(self, training: Trainer) -> PackEnd:
        pack, stopped = self.job.pack.id, bool(training.active)
        if self.first and not self._robbed:
            self._commit()
        if self.first and not self._robbed:
            if stopped:
                self._save(training)
            else:
                self.ledger.forget(pack)
        if self.group.agree(self._robbed):
            return PackEnd(pack=pack, end="taken")
        return PackEnd(pack=pack, end="stopped" if stopped else "done")

    def _loop(self, training: Trainer) -> None:
        committed = saved = time.monotonic()
        stop = self.heartbeat.asked_to_stop if self.heartbeat else lambda: False
        for events in training.run(stop):
            self._take_in(training, events)
            self._tell_known(training)
            self._let_join(training)
            if not self.first:
                continue
            now = time.monotonic()
            if self.finished and now - committed >= self.pace.commit:
                self._commit()
                committed = time.monotonic()
            if training.active and now - saved >= self.pace.snapshot:
                self._save(training)
                saved = time.monotonic()
        if self.heartbeat and self.heartbeat.error:
            raise self.heartbeat.error

    def _take_in(self, training: Trainer, events: list[Measurement | Outcome]) -> None:
        metric = self.job.pack.study.targets[-1].metric
        values = dict(self.at.values)
        ended = []
        for event in events:
            if isinstance(event, Measurement):
                points = self.points.setdefault(event.trial, [])
                if not points or points[-1].step < event.step:
                    points.append(event)
                values[event.trial] = event.metrics.get(metric)
            elif event.trial in self.wanted:
                ended.append(event)
        if self.first:
            self.paused.update(training.paused)
            self._report_not_kept(training)
        training.paused.clear()
        active = set(training.active)
        self.at = At(
            step=training.step,
            steps=training.steps,
            values={t: v for t, v in values.items() if t in active},
        )
        if ended and self.first:
            self.finished += ended
            self.wire.tell(Ended(pack=self.job.pack.id, outcomes=tuple(ended), committed=False))

    def _tell_known(self, training: Trainer) -> None:
        """Hand on what other packs found; all ranks at the same yield."""
        known = self.heartbeat.known() if self.heartbeat else ()
        if self.group.size > 1:
            known = self.group.agree(known)
        if len(known) > self.told:
            training.know(known[self.told :])
            self.told = len(known)

    def _let_join(self, training: Trainer) -> None:
        """Take in the trials that the driver has given, offer what room there is."""
        if self.job.size is None:
            return
        going_on = self.heartbeat is not None and not self.heartbeat.asked_to_stop()
        new = self.refill.take(self.heartbeat.more()) if self.heartbeat and going_on else ()
        if self.group.size > 1:
            new = self.group.agree(new)
        for more in new:
            self.job = self.job.joined_by(more)
            self.trials |= {trial.id: trial for trial in more.trials}
            self.wanted |= {trial.id for trial in more.trials}
            training.add(more.trials)
            self._resume(training, more.trials)
        if going_on and training.active:
            self.refill.offer(len(training.active))

    def _resume(self, training: Trainer, trials: Sequence[Trial]) -> None:
        """Let those of new trials that an earlier round has paused go on from there."""
        study = self.job.pack.study
        ids = [trial.id for trial in trials if trial.id in self.job.before]
        if not ids:
            return
        found = self.group.agree(self.ledger.paused(study.id, ids) if self.first else {})
        settings = settings_hash(study)
        read = {t: saved.decode_trial(d, settings, training.engine) for t, d in found.items()}
        held = {trial: each for trial, each in read.items() if each is not None}
        for trial in training.resume({trial: body for trial, (body, _) in held.items()}):
            self.points[trial] = held[trial][1]

    def _keep_paused(self, done: Sequence[Outcome]) -> Collection[str]:
        """Keep what trials that are paused need to go on, ahead of their rows; which."""
        study = self.job.pack.study
        settings, points = settings_hash(study), self.points
        held = {o.trial: self.paused.pop(o.trial) for o in done if o.trial in self.paused}
        packed = {
            trial: saved.encode_trial(settings, self.engine, body, points.get(trial, ()))
            for trial, body in held.items()
        }
        if packed:
            self.ledger.keep_paused(study.id, packed)
        return packed

    def progress(self) -> At:
        """Where the training stands."""
        return self.at

    def _commit(self) -> None:
        if not self.finished:
            return
        study, done = self.job.pack.study, self.finished
        self.finished = []
        paused = self._keep_paused(done)
        trials = [self._row(self.trials[outcome.trial], outcome) for outcome in done]
        points = [
            measurement_row(m) for outcome in done for m in self.points.pop(outcome.trial, ())
        ]
        run = self.ledger.commit(self.job.pack.id, study.experiment, points, trials)
        if run is None:
            if self.heartbeat:
                self.heartbeat.lost = True
            return
        self.wire.tell(Ended(pack=self.job.pack.id, outcomes=tuple(done), committed=True, run=run))
        over = [o.trial for o in done if o.trial in self.job.before and o.trial not in paused]
        if over:
            self.ledger.drop(study.id, over)

    def _row(self, trial: Trial, outcome: Outcome) -> dict[str, Any]:
        study = self.job.pack.study
        return trial_row(
            self.job.columns,
            study,
            trial,
            outcome,
            pack=self.job.pack.id,
            pack_models=len(self.trials),
            engine=self.engine,
            device=device_name(self.job.device),
            world_size=self.group.size,
            effective_learning_rate=effective_learning_rate(study, trial),
        )

    def _save(self, training: Trainer) -> None:
        held = None if training.not_kept else training.snapshot()
        self._report_not_kept(training)
        if held is None:
            return
        header = saved.Header(
            pack=self.job.pack.id,
            study=self.job.pack.study.id,
            settings=settings_hash(self.job.pack.study),
            trials=tuple(self.trials),
            active=training.active,
            engine=self.engine,  # type: ignore[arg-type]
            round=self.job.round,
        )
        active = set(training.active)
        points = {trial: p for trial, p in self.points.items() if trial in active}
        body = saved.encode_body(held, points)
        self.ledger.save(self.job.pack.id, saved.pack_snapshot(header, body))

    def _report_not_kept(self, training: Trainer) -> None:
        if training.not_kept and not self.not_kept_reported:
            self.not_kept_reported = True
            self.wire.tell(NotKept(pack=self.job.pack.id, reason=training.not_kept))

    def _failed(self, error: Exception | SystemExit) -> PackEnd:
        pack = self.job.pack
        alone = len(self.wanted) == 1
        trial = min(self.wanted)
        failure = Failure.of(error, trial if alone else None, self.job.moved)
        if self.first and self.group.size > 1:
            failure = self._of_group(failure)
        if self.first and not self._robbed and not isinstance(error, ResultsError):
            if alone and not failure.clear:
                step = self.at.step
                self.finished.append(
                    Outcome(
                        trial=trial,
                        status="INCOMPLETE",
                        stop_reason="error",
                        steps_run=step,
                        examples_run=step * pack.study.batch_size,
                        error=failure.traceback,
                    )
                )
            self._commit()
            self.ledger.forget(pack.id)
        return PackEnd(pack=pack.id, end="failed", failure=failure)

    def _of_group(self, failure: Failure) -> Failure:
        """What another rank raised: what this one met may be that the other has left the group."""
        first = self.wire.asks(self.job.pack.id).failure
        return replace(first, trial=failure.trial) if first else failure

    @property
    def _robbed(self) -> bool:
        """Whether rank 0 has lost the claim."""
        return self.heartbeat is not None and self.heartbeat.lost

    def close(self) -> None:
        if self.heartbeat:
            self.heartbeat.close()
            self.ledger.release(self.job.pack.id)
