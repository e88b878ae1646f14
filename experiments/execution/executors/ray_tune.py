"""Trains packs through Ray Tune: a Tune trial is a pack, its workers are reused."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.exceptions import RayError
from ray.tune.progress_reporter import TrialProgressCallback

from experiments.execution.executors import LOOK_SECONDS, Look, demand
from experiments.execution.executors.lost_workers import explain, killed_for_memory, worker_log
from experiments.execution.executors.mailbox import (
    Mailbox,
    RemoteLedger,
    Writer,
    beside_driver,
    wire,
)
from experiments.execution.executors.ray_session import RaySession
from experiments.execution.executors.searcher import PackSearcher
from experiments.execution.ledger import FolderLedger, Ledger
from experiments.execution.signals import Stop
from experiments.execution.staging import Staged
from experiments.execution.worker import MakeTrainer, Pace, run_pack, training
from experiments.plan import Layout, Outcome
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.failures import Failure
from experiments.scheduling.jobs import Channel, Ended, Job, Message, PackEnd
from results.storage.location import Location

_LISTEN_SECONDS = 0.2
_TRIALS_A_TUNER = 1000
_RETRIES = 2
"""Of a pack whose worker died. What its code raises is not tried again here."""


_ledgers: dict[Location, FolderLedger] = {}


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What a worker needs besides its job. It travels to every worker once."""

    board: Any
    writer: Any | None
    """Who writes for it; ``None``: it reaches the results folder itself."""
    location: Location
    processes: tuple[Any, ...]
    staged: Staged
    layout: Layout
    trainer: MakeTrainer
    pace: Pace

    def job(self, pack: str) -> Job:
        """The job, with the user's files where this worker has them."""
        job, done = ray.get([self.board.get.remote(pack), self.board.committed.remote(pack)])
        # A worker that died may have recorded some: this one is its successor.
        wanted = job.wanted - {outcome.trial for outcome in done}
        study = self.staged.localize(job.pack.study)
        os.chdir(study.workload.base or ".")  # where the files of the experiment are
        here, there = job.pack.study.workload.base, study.workload.base
        moved = (there, here) if here and there else None
        found: Job = replace(job, wanted=wanted, moved=moved, pack=replace(job.pack, study=study))
        return found

    def ledger(self) -> Ledger:
        """One a process, which remembers what it has read."""
        if self.writer is not None:
            return RemoteLedger(self.writer)
        if self.location not in _ledgers:
            _ledgers[self.location] = FolderLedger(self.location, self.processes)
        return _ledgers[self.location]


class RayTune:
    """One Tuner for packs of one layout on a connected Ray."""

    def __init__(
        self,
        location: Location,
        session: RaySession,
        staged: Staged,
        layout: Layout,
        *,
        trainer: MakeTrainer = training,
        pace: Pace | None = None,
    ) -> None:
        """
        Raises:
            ExperimentError: the cluster can never place a pack of this layout.
        """
        self.layout = demand.with_gpus(layout)
        demand.refuse_impossible(self.layout)
        self.slots = demand.slots(self.layout)
        self.device = "cuda" if self.layout.gpus_per_worker else "cpu"
        shared = session.one_machine or not location.local
        self._board = beside_driver(Mailbox)
        self._station = WorkerContext(
            board=self._board,
            writer=None if shared else beside_driver(Writer, location, session.processes),
            location=location,
            processes=session.processes,
            staged=staged,
            layout=self.layout,
            trainer=trainer,
            pace=pace or Pace(),
        )
        self._hearing = threading.Lock()
        self._error: Exception | None = None
        self._one_machine = session.one_machine
        self._killed_before = killed_for_memory()

    def run(self, dispatcher: Dispatcher, stop: Stop, look: Look) -> None:
        """Train until the dispatcher has no more, is stopped, or ``stop`` asks."""
        dispatcher.share = lambda pack, known: self._board.share.remote(pack, known)
        dispatcher.give = lambda pack, more: self._board.give.remote(pack, more)
        with self._listening(dispatcher, stop, look):
            while not stop and not dispatcher.finished:
                self._tune(dispatcher, stop)
                if self._error:
                    raise self._error
        self._drain(dispatcher)

    def _tune(self, dispatcher: Dispatcher, stop: Stop) -> None:
        progress = _Silent()
        searcher = PackSearcher(
            dispatcher,
            stop,
            send=lambda job: ray.get(self._board.put.remote(job)),
            drain=lambda: self._drain(dispatcher),
            slots=lambda: demand.slots(self.layout),
            limit=_TRIALS_A_TUNER,
            explain=lambda trial: self._explain(progress.error_of(trial)),
        )
        if self.layout.workers > 1:
            from experiments.execution.executors.ray_train import train_group as function
        else:
            function = train_alone
        with tempfile.TemporaryDirectory(prefix="batchscale-tune-") as folder, _quiet():
            tune.Tuner(
                tune.with_resources(
                    tune.with_parameters(function, station=self._station),
                    tune.PlacementGroupFactory([demand.tune_resources(self.layout)]),
                ),
                tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1, reuse_actors=True),
                run_config=tune.RunConfig(
                    name="packs",
                    storage_path=str(Path(folder).resolve()),
                    callbacks=[progress],
                    failure_config=tune.FailureConfig(max_failures=_RETRIES),
                    verbose=0,
                ),
            ).fit()

    def _explain(self, text: str) -> Failure:
        """Why a pack's workers never said how it ended; what only this machine knows is asked."""
        log, killed = None, None
        node = getattr(ray._private.worker, "_global_node", None)
        if self._one_machine and node is not None:
            log = worker_log(text, Path(node.get_logs_dir_path()))
            now = killed_for_memory()
            if now is not None and self._killed_before is not None:
                killed = now - self._killed_before
        return explain(text, times=_RETRIES + 1, log=log, killed=killed)

    def _drain(self, dispatcher: Dispatcher) -> None:
        with self._hearing:
            for word in ray.get(self._board.drain.remote()):
                dispatcher.hear(word)

    @contextmanager
    def _listening(self, dispatcher: Dispatcher, stop: Stop, look: Look) -> Iterator[None]:
        """Beside Tune's own loop: hear the workers, pass on a stop, look at other drivers."""
        over = threading.Event()

        def listen() -> None:
            rounds = 0
            while not over.wait(_LISTEN_SECONDS):
                rounds += 1
                try:
                    self._drain(dispatcher)
                    if stop or dispatcher.stopped:
                        self._board.stop.remote()
                    if rounds % _LOOK_EVERY == 0:
                        look()
                except Exception as error:  # raised where the sweep is, once Tune has ended
                    self._error = error
                    dispatcher.stop()
                    return

        thread = threading.Thread(target=listen, name="listen", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray's warnings about itself. A pack that fails for good is told by the dispatcher."""
    logger = logging.getLogger("ray.tune")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


class _Silent(TrialProgressCallback):
    """In the place of the one that prints; the display is ours. It knows Tune's trials."""

    _trials: Sequence[Any] = ()

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Before Tune takes in what has happened."""
        del iteration
        self._trials = trials

    def error_of(self, trial: str) -> str:
        """What Tune has written down of a trial's last error."""
        for known in self._trials:
            if known.trial_id == trial and known.error_file and Path(known.error_file).exists():
                text = Path(known.error_file).read_text(encoding="utf-8", errors="replace")
                return text.rpartition("Failure # ")[2].partition("\n")[2]
        return ""

    def log_result(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """Nothing."""


_LOOK_EVERY = round(LOOK_SECONDS / _LISTEN_SECONDS)


def train_alone(config: dict[str, Any], station: WorkerContext) -> None:
    """The Tune function of a single worker."""
    torch.set_num_threads(1)
    line, pack = wire(station.board), config["pack"]
    guarded(
        pack,
        line.tell,
        lambda: run_pack(
            station.job(pack),
            station.ledger(),
            Channel(tell=reporting(line.tell), asks=line.asks),
            trainer=station.trainer,
            pace=station.pace,
        ),
    )


def guarded(pack: str, tell: Callable[[PackEnd], None], run: Callable[[], PackEnd]) -> PackEnd:
    """``run()``; what it raises is told as the pack's failure, and only what Ray raises passes.

    To Ray Tune any exception is a worker that died, whose pack is to be tried again.
    """
    try:
        return run()
    except RayError:
        raise
    except (Exception, SystemExit) as error:
        end = PackEnd(pack=pack, end="failed", failure=Failure.of(error))
        tell(end)
        return end


def reporting(tell: Callable[[Message], None]) -> Callable[[Message], None]:
    """``tell`` that makes each commit a report of Tune's too, for its loggers and callbacks."""
    ended: Counter[str] = Counter()

    def also_report(word: Message) -> None:
        tell(word)
        if isinstance(word, Ended) and word.committed:
            ended.update(summary(word.outcomes))
            tune.report(dict(ended))

    return also_report


def summary(outcomes: tuple[Outcome, ...]) -> dict[str, int]:
    """What a Tune report says of trials that have ended."""
    return {
        "trials": len(outcomes),
        "reached": sum(1 for o in outcomes if o.steps_to_target is not None),
        "infeasible": sum(1 for o in outcomes if o.status == "INFEASIBLE"),
        "dominated": sum(1 for o in outcomes if o.stop_reason == "dominated"),
    }
