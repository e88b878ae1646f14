"""The worker's side: the Tune function of a single worker, and what every worker needs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import ray
from ray.exceptions import RayError

from experiments.execution.failures import describe
from experiments.execution.ledger import Ledger
from experiments.execution.ray import notice
from experiments.execution.ray.mailbox import RemoteLedger, channel, summary
from experiments.execution.staging import Staged
from experiments.execution.worker import MakeTrainer, Pace, run_pack
from experiments.plan import Layout
from experiments.programs.place import folder_of_trials
from experiments.scheduling.messages import Assignment, Ended, Message, Over
from experiments.training.threads import use_single_thread
from results.storage.location import Location

_ledgers: dict[Location, Ledger] = {}


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """The data that a worker needs besides its assignment; sent to every worker once."""

    mailbox: Any
    writer: Any | None
    """The actor that writes for it; ``None`` if it reaches the results folder itself."""
    location: Location
    processes: tuple[Any, ...]
    staged: Staged
    layout: Layout
    trainer: MakeTrainer
    pace: Pace

    def localize(self, assigned: Assignment) -> Assignment:
        """The same with the paths of the user's files on this worker."""
        study = self.staged.localize(assigned.pack.study)
        os.chdir(study.workload.base or ".")  # the folder of the experiment's files
        here, there = assigned.pack.study.workload.base, study.workload.base
        moved = (there, here) if here and there else None
        return replace(assigned, moved=moved, pack=replace(assigned.pack, study=study))

    def ledger(self) -> Ledger:
        """The ledger of this process, which remembers what it has read."""
        place = {"node": ray.get_runtime_context().get_node_id()}
        if self.writer is not None:
            programs = folder_of_trials(self.location, reached=False)
            return cast(Ledger, RemoteLedger(self.writer, place, programs))
        if self.location not in _ledgers:
            _ledgers[self.location] = Ledger(self.location, self.processes)
            _ledgers[self.location].place = place
        return _ledgers[self.location]


def train_alone(config: dict[str, Any], context: WorkerContext) -> None:
    """The Tune function of a single worker."""
    use_single_thread()
    line, pack = channel(context.mailbox), config["pack"]
    worker = ray.get_runtime_context().current_actor
    context.mailbox.arrive.remote(pack, worker)
    with notice.packs_end_on_sigterm(line) as line:
        # Tune takes reports of one thread.
        reported = replace(line, send=reporting(line.send))
        try:
            run_pack(
                context.localize(ray.get(context.mailbox.ask.remote(pack))),
                context.ledger(),
                reported,
                trainer=context.trainer,
                pace=context.pace,
                leave=partial(_leave, line.send),
            )
        except RayError:
            raise
        # Ray Tune takes any other for a dead worker, and would try its pack again.
        except (Exception, SystemExit) as error:
            line.send(Over(pack=pack, end="failed", failure=describe(error)))
    context.mailbox.leave.remote(pack)


# A mixin of the class that Tune makes of the function: its ``setup`` runs in the main thread.
train_alone.__mixins__ = (notice.Listens,)  # type: ignore[attr-defined]


def _leave(
    send: Callable[[Message], None], end: Callable[[], Over], ledger: Ledger, assignment: Assignment
) -> None:
    """End this worker's process, in whose code a trial does not come back."""
    ended = end()
    ledger.release(assignment.pack.id)
    send(ended)
    os._exit(1)


def reporting(send: Callable[[Message], None]) -> Callable[[Message], None]:
    """``send`` that makes each commit a report of Tune's too, for its loggers and callbacks."""
    from ray import tune  # not for ranks, which import this module too: it takes a second

    ended: Counter[str] = Counter()
    listened_to = True

    def also_report(message: Message) -> None:
        nonlocal listened_to
        send(message)
        if listened_to and isinstance(message, Ended) and message.run:
            ended.update(summary(message.outcomes))
            try:
                tune.report(dict(ended))
            except SystemExit:
                # Tune has ended, which is no error of the trials that train; a second report would
                # wait for it for ever.
                listened_to = False

    return also_report
