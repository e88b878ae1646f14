"""Trains packs through Ray Tune: a Tune trial is a pack, its workers are reused."""

from __future__ import annotations

import itertools
import logging
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError

from experiments.errors import ExperimentError
from experiments.execution.executors.base import ExecutorContext
from experiments.execution.polling import polling
from experiments.execution.ray.demand import Nodes, WaitWatch, bundles
from experiments.execution.ray.lost_workers import (
    explain,
    killed_for_memory,
    unresponsive,
    without_actor,
    worker_log,
)
from experiments.execution.ray.mailbox import Mailbox, Writer, beside_driver
from experiments.execution.ray.ranks.group import GroupContext, train_group
from experiments.execution.ray.searcher import NotWaiting, PackSearcher, TrialStates
from experiments.execution.ray.start import RaySession
from experiments.execution.ray.worker import WorkerContext, train_alone
from experiments.execution.staging import Staged
from experiments.execution.worker import Pace
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Failure, Over
from results.counts import count
from results.run_state.claims import Claims

_DEAD = (RayActorError, OutOfMemoryError)
"""What a call of an actor that is gone raises; the second: Ray has ended it for its memory."""
_LISTEN_SECONDS = 0.2
_DEATHS = 3
"""Deaths of our actors beside the driver after which the sweep ends."""
_ANSWER_SECONDS = 30.0
_CHECK_EVERY = 10
"""Times that messages are received, between two checks for workers that do not answer."""
_TRIALS_A_TUNER = 20_000
"""Packs of one Tuner: at its end all its workers wait for the last one. Tune holds some 20 KB of
each."""
_LEAST_ASK, _MOST_ASK = 0.5, 4.0
"""Seconds between two questions of a worker: all workers together ask a hundred times a second."""


class RayTune:
    """One Tuner for packs of one layout on a connected Ray."""

    mailbox = Mailbox

    def __init__(
        self, context: ExecutorContext, layout: Layout, *, session: RaySession, staged: Staged
    ) -> None:
        """
        Raises:
            ExperimentError: the cluster can never place a pack of this layout.
        """
        self._nodes = Nodes(context.grows_to)
        capacity = self._nodes.capacity()
        self.layout = capacity.with_gpus(layout)
        capacity.refuse_impossible(self.layout)
        self.device = "cuda" if self.layout.gpus_per_worker else "cpu"
        self._notes = [session.note] if session.note else []
        self.slots = capacity.slots(self.layout)
        self._waits = WaitWatch()
        location = context.location
        self._callbacks = context.callbacks
        self._shared_folder = session.single_machine or not location.local
        self._deaths = 0
        """Of our actors beside the driver."""
        self._context = WorkerContext(
            mailbox=None,
            writer=None,
            location=location,
            processes=session.processes,
            staged=staged,
            layout=self.layout,
            trainer=context.trainer,
            pace=context.pace or Pace(ask=min(_MOST_ASK, max(_LEAST_ASK, self.slots / 100))),
        )
        self._start_actors()
        self._claims = Claims(location)
        self._pace = self._context.pace
        self._ended: dict[str, float] = {}
        """Packs whose processes were ended because they did not answer, and for how long."""
        self._draining = threading.Lock()
        self._error: Exception | None = None
        self._out: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._on_this_machine = session.single_machine
        self._killed_before = killed_for_memory()

    def _start_actors(self) -> None:
        """What stands beside the driver: the mailbox, and what writes for workers elsewhere."""
        self._mailbox = beside_driver(self.mailbox)
        writer = (Writer, self._context.location, self._context.processes)
        self._context = replace(
            self._context,
            mailbox=self._mailbox,
            writer=None if self._shared_folder else beside_driver(*writer),
        )

    def _an_actor_died(self) -> bool:
        actors = [a for a in (self._context.mailbox, self._context.writer) if a is not None]
        try:
            ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=_ANSWER_SECONDS)
        except GetTimeoutError:
            return False
        except _DEAD:
            return True
        return False

    def _replace_actors(self, dispatcher: Dispatcher) -> None:
        """Go on with new actors. Packs that were out go back, as from a node that is lost; what
        their workers have recorded meanwhile is found on the disk, when others claim them.

        Raises:
            ExperimentError: they have died again and again.
        """
        self._deaths, self._error = self._deaths + 1, None
        if self._deaths > _DEATHS:
            raise ExperimentError(
                f"a process of batchscale beside the driver has died {count(self._deaths, 'time')}",
                hint="what was committed is safe; does something end it, as for its memory? Then "
                "give the same command again",
            )
        self._start_actors()
        for pack in dispatcher.out:
            self._claims.abandon(pack)
            dispatcher.receive(Over(pack=pack, end="failed", failure=without_actor()))

    def run(self, dispatcher: Dispatcher) -> None:
        """Train until the dispatcher has no more packs, or is stopped."""
        for text in self._notes:
            dispatcher.note(text)
        while not dispatcher.finished:
            try:
                with self._listening(dispatcher):
                    self._tune(dispatcher)
                self._drain(dispatcher)
            except Exception as error:  # of Tune's loop, which calls our searcher
                self._error = self._error or error
            if self._error and self._an_actor_died():
                self._replace_actors(dispatcher)
            elif self._error:
                raise self._error

    def _tune(self, dispatcher: Dispatcher) -> None:
        progress = TrialStates()
        searcher = PackSearcher(
            dispatcher,
            send=self._send,
            drain=lambda: self._drain(dispatcher),
            slots=lambda: self._nodes.capacity().slots(self.layout),
            limit=_TRIALS_A_TUNER,
            explain=lambda trial, pack: self._explain(
                progress.error_of(trial), pack, dispatcher.failures.deaths(pack) + 1
            ),
            over=lambda: self._error is not None,
        )
        self._out = lambda: self._placed(searcher.out, progress)
        worker = self._nodes.capacity().worker(self.layout)
        with tempfile.TemporaryDirectory(prefix="batchscale-tune-") as folder, _quiet():
            tune.Tuner(
                tune.with_resources(
                    self.trainable(worker),
                    # As few machines as hold the ranks of a group.
                    tune.PlacementGroupFactory(bundles(self.layout, worker), strategy="PACK"),
                ),
                tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1, reuse_actors=True),
                run_config=tune.RunConfig(
                    name="packs",
                    storage_path=str(Path(folder).resolve()),
                    callbacks=[progress, *self._callbacks],
                    stop=NotWaiting(
                        lambda: (
                            self._error is not None or (dispatcher.stopped and self._out()[1] == 0)
                        )
                    ),
                    # The dispatcher decides what becomes of the trials of a dead worker.
                    failure_config=tune.FailureConfig(max_failures=0),
                    verbose=0,
                ),
            ).fit()

    def trainable(self, worker: Mapping[str, float]) -> Callable[[dict[str, Any]], None]:
        """The Tune function, which trains the pack that its configuration names.

        Args:
            worker: Ray's resources of a worker.
        """
        function: Callable[..., None] = train_alone
        context: WorkerContext | GroupContext = self._context
        if self.layout.workers > 1:
            function = train_group
            context = GroupContext(
                mailbox=self._mailbox,
                size=self.layout.workers,
                resources=worker,
                timeout=self._context.pace.collective,
                ranks=(ray.put(self._context),),
            )
        of_pack: Callable[[dict[str, Any]], None] = tune.with_parameters(function, context=context)
        return of_pack

    def _explain(self, text: str, pack: str, times: int) -> Failure:
        """Why a pack's worker ended without a message; with its log if it ran here."""
        self._claims.abandon(pack)
        if self._an_actor_died():
            self._error = self._error or RayActorError()
            return without_actor()
        if pack in self._ended:
            return unresponsive(self._ended.pop(pack))
        log, killed = None, None
        node = getattr(ray._private.worker, "_global_node", None)
        if self._on_this_machine and node is not None:
            log = worker_log(text, Path(node.get_logs_dir_path()))
            now = killed_for_memory()
            if now is not None and self._killed_before is not None:
                killed = now - self._killed_before
        return explain(text, times=times, log=log, killed=killed)

    def _placed(self, out: Mapping[str, str], progress: TrialStates) -> tuple[int, int]:
        """Packs that are out, and those of them whose workers have begun."""
        begun, running = ray.get(self._mailbox.begun.remote()), progress.running()
        return len(out), sum(t in running and pack in begun for t, pack in out.items())

    def _say_what_waits(self, dispatcher: Dispatcher) -> None:
        out, running = self._out()
        capacity, free = self._nodes.capacity(), self._nodes.free
        text = self._waits.sentence(self.layout, capacity, free, out=out, running=running)
        if text is not None:
            dispatcher.note(text)

    def _drain(self, dispatcher: Dispatcher) -> None:
        with self._draining:
            if news := dispatcher.news():
                self._mailbox.add.remote(news)
            for message in ray.get(self._mailbox.drain.remote()):
                # Of a group rank 0 may have been ended with its claim.
                if isinstance(message, Over) and self.layout.workers > 1 and message.end != "done":
                    self._claims.abandon(message.pack)
                dispatcher.receive(message)

    def _send(self, assignment: Assignment) -> None:
        ray.get(self._mailbox.put.remote(assignment))

    def _end_silent(self, stopped: float | None) -> None:
        """End the processes that do not answer: for too long, or soon after a request to stop."""
        seconds = self._pace.silent
        if stopped is not None and time.monotonic() - stopped >= self._pace.stop:
            seconds = self._pace.stop
        for pack, worker in ray.get(self._mailbox.silent.remote(seconds)):
            self._ended[pack] = seconds
            ray.kill(worker)

    @contextmanager
    def _listening(self, dispatcher: Dispatcher) -> Iterator[None]:
        """Beside Tune's loop: receive messages, pass on a stop, end what does not answer."""
        rounds, stopped = itertools.count(1), None

        def listen() -> None:
            nonlocal stopped
            self._drain(dispatcher)
            if dispatcher.stopped:
                stopped = stopped or time.monotonic()
                self._mailbox.stop.remote()
            if next(rounds) % _CHECK_EVERY == 0:
                self._end_silent(stopped)
                self._say_what_waits(dispatcher)

        def failed(error: Exception) -> None:  # raised in the sweep, once Tune has ended
            self._error = error
            if not isinstance(error, _DEAD):
                dispatcher.stop()

        with polling(listen, failed, _LISTEN_SECONDS):
            yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray's warnings about itself. The dispatcher reports a pack that fails for good."""
    logger = logging.getLogger("ray.tune")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
