"""Runs one pack on one worker group: claims, trains, commits, saves snapshots, and reports.

As trials end, the driver assigns further ones: rank 0 claims them, and all ranks add them at the
same evaluation. Trials that were assigned to a pack that has ended were not trained and are still
missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from experiments.encoding import MalformedError
from experiments.execution.beat import Beat, Cut, Pace, Position
from experiments.execution.failures import describe
from experiments.execution.ledger import Ledger, claimed
from experiments.execution.process_end import EndProcess, end_program
from experiments.execution.trainer import MakeTrainer, Trainer, in_chosen_layout, training
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Measurement, Outcome, Pack, Trial
from experiments.records import snapshots
from experiments.records.rows import device_name, trial_row
from experiments.records.snapshots import settings_hash
from experiments.scheduling.failures import failed_outcome
from experiments.scheduling.messages import (
    Assignment,
    Channel,
    Failure,
    Note,
    Over,
    SnapshotHeader,
    Taken,
)
from results.errors import DatasetLostError, ResultsError

__all__ = ["MakeTrainer", "Pace", "Trainer", "run_pack", "training"]


def run_pack(
    assignment: Assignment,
    ledger: Ledger,
    channel: Channel,
    *,
    group: Ranks = SOLO,
    trainer: MakeTrainer = training,
    pace: Pace | None = None,
    leave: EndProcess = end_program,
) -> Over:
    """Train a pack to its end, until the driver asks to stop, or until its claim is lost.

    Finished trials are committed at the end and at least every ``pace.commit`` seconds; what still
    trains is kept in a snapshot, which a stop renews and the end deletes. An exception of the
    pack's own code ends it: what had finished is committed, and a pack of one records it as an
    error; of a group which does not know its cause, the driver does. Every rank of a group calls
    this; rank 0 alone writes.

    Training that makes no progress is interrupted (``beat``). ``leave`` ends the process where
    it cannot be; at once, if it does not run in the main thread.
    """
    began, first = time.monotonic(), group.rank == 0
    study = assignment.pack.study
    info = {"experiment": study.experiment, "study": study.id, "round": assignment.round}
    if not assignment.wanted:  # its predecessor died after the last commit
        end = assignment.over("done")
    elif claimed(assignment, ledger, group, info):
        with closing(_PackRun(assignment, ledger, channel, group, pace or Pace(), leave)) as run:
            data = ledger.load(assignment.pack.id) if first else None
            try:
                with run.beat.interrupting():
                    end = run.train(trainer, group.agree(data))
            except Cut:
                end = run.cut_off()
            # The user's error, or ours about the user's code. If it ended the worker, that would
            # count as a crash.
            except (Exception, SystemExit) as error:
                end = run.failed(error)
    else:
        end = assignment.over("taken")
    end = replace(end, seconds=time.monotonic() - began)
    if first:
        channel.send(end)
    return end


class _PackRun:
    """One pack on one rank, from its claim to its release."""

    def __init__(
        self,
        assignment: Assignment,
        ledger: Ledger,
        channel: Channel,
        group: Ranks,
        pace: Pace,
        leave: EndProcess,
    ) -> None:
        self.assignment, self.ledger, self.channel = assignment, ledger, channel
        self.group, self.pace = group, pace
        self.first = group.rank == 0
        self.trials = {trial.id: trial for trial in assignment.pack.trials}
        self.taken = 0
        """How many of them another driver has."""
        self.points: dict[str, list[Measurement]] = {}
        self.finished: list[Outcome] = []
        self.paused: dict[str, bytes] = {}
        """The states of paused trials among those."""
        self.position = Position()
        self.not_kept_reported = False
        self.training: Trainer | None = None
        if group.size > 1:  # ranks wait for each other: who hangs is found out by the group
            pace = replace(pace, hang=math.inf, stop=math.inf)
        self.beat = Beat(
            assignment,
            ledger,
            channel,
            pace,
            lambda: self.position,
            lambda: leave(self.cut_off, self.ledger, self.assignment),
        )
        if self.first:
            self.beat.start()

    @property
    def pack(self) -> Pack:
        return self.assignment.pack

    def train(self, trainer: MakeTrainer, snapshot: bytes | None) -> Over:
        """Train to the end, from a snapshot where there is one."""
        with self.beat.setting_up():
            self.assignment = in_chosen_layout(self.assignment, self.group)
            training, new = self._begin(trainer, snapshot)
        self.training = training
        pack = replace(self.pack, engine=training.engine)  # type: ignore[arg-type]
        self.assignment = replace(self.assignment, pack=pack)
        training.know(self.assignment.hits)
        begun = self.assignment.begun(training.engine, training.step)
        self._resume(training, new)
        if self.first:
            self.channel.send(begun)
        committed = saved = time.monotonic()
        for events in self.beat.over(training.run(self.beat.stop_requested)):
            self._take_in(training, events)
            self._take_news(training)
            now = time.monotonic()
            if self.finished and now - committed >= self.pace.commit:
                self._commit()
                committed = time.monotonic()
            # A layout's state lies on all ranks: they save it together.
            if training.active and self.group.agree(now - saved >= self.pace.snapshot):
                self._commit()  # trials that have ended are not in the snapshot
                self._save(training)
                saved = time.monotonic()
        if self.beat.error:
            raise self.beat.error
        self._commit()
        if self.group.agree(self.beat.lost):
            return self.assignment.over("taken")
        if training.active:
            self._save(training)
        elif self.first:
            self.ledger.delete(self.pack.id)
        return self.assignment.over("stopped" if training.active else "done")

    def _begin(self, trainer: MakeTrainer, data: bytes | None) -> tuple[Trainer, Sequence[Trial]]:
        """The training, from a snapshot where there is one, and the trials that begin with it.

        It trains the wanted trials alone. Without a snapshot of this very pack, or where it cannot
        be read, they begin together.
        """
        pack, wanted = self.pack, self.assignment.wanted
        how: dict[str, Any] = {"device": self.assignment.device, "group": self.group}
        if pack.study.workload.program is not None:
            how["folder"] = self.ledger.programs
        snapshot = snapshots.unpack_snapshot(data) if data is not None else None
        if snapshot is not None:
            header, body = snapshot
            held = pack.trials[: len(header.trials)]
            same = header.trials == tuple(trial.id for trial in held)
            if same and header.settings == settings_hash(pack.study):
                with suppress(MalformedError):
                    state, points = snapshots.decode_body(body)
                    training = trainer(replace(pack, trials=held), snapshot=state, **how)
                    active = [trial for trial in training.active if trial in wanted]
                    if active:
                        if len(active) < len(training.active):
                            training.keep(active)
                        self.points = {t: p for t, p in points.items() if t in active}
                        new = [t for t in pack.trials if t.id in wanted and t.id not in active]
                        if new:
                            training.add(new)
                        return training, new
        new = [trial for trial in pack.trials if trial.id in wanted]
        return trainer(replace(pack, trials=tuple(new)), snapshot=None, **how), new

    def _take_in(self, training: Trainer, events: Sequence[Measurement | Outcome]) -> None:
        metric = self.pack.study.targets[-1].metric
        values = dict(self.position.values)
        ended = []
        for event in events:
            if isinstance(event, Measurement):
                points = self.points.setdefault(event.trial, [])
                if not points or points[-1].step < event.step:
                    points.append(event)
                values[event.trial] = event.metrics.get(metric)
            elif event.trial in self.assignment.wanted:
                ended.append(event)
        if self.first:
            self.paused.update(training.paused)
            self._report_not_kept(training)
        training.paused.clear()
        self.position = Position(
            step=training.step,
            steps=training.steps,
            values={trial: values.get(trial) for trial in training.active},
        )
        if ended and self.first:
            self._report_ended(ended)

    def _report_ended(self, ended: Sequence[Outcome]) -> None:
        """Say at once which trials have ended; their rows are written at the next commit."""
        self.finished += ended
        self.channel.send(self.assignment.ended(ended))

    def _take_news(self, training: Trainer) -> None:
        """Use what the driver has assigned since: steps to target that other packs have recorded,
        and trials that join; all ranks at the same evaluation."""
        news = self.group.agree(self._news())
        if news is None:
            return
        training.know(news.hits[len(self.assignment.hits) :])
        self.assignment = self.assignment.joined_by(news)
        self.trials |= {trial.id: trial for trial in news.pack.trials}
        joined = [trial for trial in news.pack.trials if trial.id in news.wanted]
        if joined:
            training.add(joined)
            self._resume(training, joined)

    def _news(self) -> Assignment | None:
        """What is new for rank 0, ``None`` if nothing is. Trials that join have been claimed; those
        that another driver has claimed or recorded meanwhile are not wanted."""
        if not self.first:
            return None
        news = self.beat.assignment.after(len(self.trials))
        if self.beat.stop_requested():  # nothing more begins
            news = news.after(len(news.pack.trials))
        ids = [trial.id for trial in news.pack.trials]
        if not ids and len(news.hits) == len(self.assignment.hits):
            return None
        if ids and not self.ledger.extend(self.pack.id, ids, news.before):
            self.channel.send(Taken(pack=self.pack.id, trials=tuple(ids)))
            self.taken += len(ids)
            news = news.without(ids)
        return news

    def _resume(self, training: Trainer, trials: Sequence[Trial]) -> None:
        """Let new trials that an earlier round has paused continue from there."""
        study = self.pack.study
        ids = [trial.id for trial in trials if trial.id in self.assignment.before]
        if not ids:
            return
        files = self.group.agree(self.ledger.paused(study.id, ids) if self.first else {})
        settings, engine = settings_hash(study), training.engine
        read = {t: snapshots.decode_trial(data, settings, engine) for t, data in files.items()}
        paused = {trial: content for trial, content in read.items() if content is not None}
        for trial in training.resume({trial: state for trial, (state, _) in paused.items()}):
            self.points[trial] = paused[trial][1]

    def _keep_paused(self, done: Sequence[Outcome]) -> Collection[str]:
        """Keep the states of paused trials, before their rows are written; their ids."""
        study = self.pack.study
        origin, points = (settings_hash(study), self.pack.engine), self.points
        packed = {
            t: snapshots.encode_trial(*origin, self.paused.pop(t), points.get(t, ()))
            for t in [o.trial for o in done]
            if t in self.paused
        }
        if packed:
            self.ledger.keep_paused(study.id, packed)
        return packed

    def _commit(self) -> None:
        """Write the rows of what has finished, on rank 0 and as long as the claim is held."""
        if not self.finished or self.beat.lost:
            return
        assigned, study = self.assignment, self.pack.study
        done, self.finished = self.finished, []
        paused: Collection[str] = ()
        with suppress(DatasetLostError):  # the commit keeps the rows elsewhere, and raises
            paused = self._keep_paused(done)
        of_the_pack = {
            "pack": self.pack.id,
            "pack_models": len(self.trials) - self.taken,
            "engine": self.pack.engine,
            "device": device_name(assigned.device),
            "world_size": self.group.size,
        }
        trials = [
            trial_row(assigned.columns, study, self.trials[o.trial], o, **of_the_pack) for o in done
        ]
        # ``asdict`` would copy what is in them, which takes as long as writing it.
        points = [dict(vars(m)) for outcome in done for m in self.points.pop(outcome.trial, ())]
        run = self.ledger.commit(self.pack.id, study.experiment, points, trials)
        if run is None:
            self.beat.lost = True
            return
        self.channel.send(assigned.ended(done, run))
        over = [o.trial for o in done if o.trial in assigned.before and o.trial not in paused]
        if over:
            self.ledger.drop(study.id, over)

    def _save(self, training: Trainer) -> None:
        state = None if training.not_kept else training.snapshot()
        if not self.first:
            return
        self._report_not_kept(training)
        if state is None:
            return
        header = SnapshotHeader(
            pack=self.pack.id,
            study=self.pack.study.id,
            settings=settings_hash(self.pack.study),
            trials=tuple(self.trials),
            active=training.active,
            engine=training.engine,  # type: ignore[arg-type]
            round=self.assignment.round,
        )
        active = set(training.active)
        points = {trial: p for trial, p in self.points.items() if trial in active}
        body = snapshots.encode_body(state, points)
        self.ledger.save(self.pack.id, snapshots.pack_snapshot(header, body))

    def _report_not_kept(self, training: Trainer) -> None:
        if training.not_kept and not self.not_kept_reported:
            self.not_kept_reported = True
            text = (
                f"its trials cannot be saved while they train: {training.not_kept}. They train on; "
                "those that an interruption cuts off begin again."
            )
            self.channel.send(Note(pack=self.pack.id, text=text, once=True))

    def failed(self, error: Exception | SystemExit) -> Over:
        """Commit what has finished, and describe what was raised."""
        if isinstance(error, DatasetLostError) and self.first:
            try:
                self._commit()
            except DatasetLostError as kept:  # it says where
                error = kept
        failure = describe(error, self.assignment.moved, self.channel.cause(error))
        return self._ended_by(failure, write=not isinstance(error, ResultsError))

    def cut_off(self) -> Over:
        """The end of a pack whose training was interrupted; its last snapshot is kept."""
        if self.beat.failure is not None:
            return self._ended_by(self.beat.failure)
        self._commit()
        return self.assignment.over("stopped")

    def _ended_by(self, failure: Failure, *, write: bool = True) -> Over:
        """Commit what has finished, and the failed trial, if that is known."""
        pack, trial = self.pack, self._failed_trial(failure)
        failure = replace(failure, trial=trial)
        if self.first:
            self.beat.report()  # from which the driver sees whether it has trained at all
        if self.first and not self.beat.lost and write:
            if trial is not None and not failure.clear:
                outcome = failed_outcome(pack.study, trial, failure, self.position.step)
                self._report_ended([outcome])
            self._commit()
            if trial is not None and len(self.assignment.wanted) == 1:
                self.ledger.delete(pack.id)
        return self.assignment.over("failed", failure)

    def _failed_trial(self, failure: Failure) -> str | None:
        """The trial that an exception is of: that in training, where they train one by one. Of a
        group the group decides whose exception is the cause."""
        if self.group.size > 1:
            return None
        if len(self.assignment.wanted) == 1:
            return min(self.assignment.wanted)
        if failure.cause == "memory" or failure.clear:
            return None
        return self.training.current if self.training is not None else None

    def close(self) -> None:
        self.beat.close()
        if self.first:
            self.ledger.release(self.pack.id)
