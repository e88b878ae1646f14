"""Trains packs through Ray Tune: a Tune trial is a pack, its workers are reused."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher

from experiments.execution.executors.base import POLL_SECONDS, ExecutorContext
from experiments.execution.ray import demand
from experiments.execution.ray.lost_workers import (
    explain,
    killed_for_memory,
    unresponsive,
    worker_log,
)
from experiments.execution.ray.mailbox import Mailbox, Writer, beside_driver
from experiments.execution.ray.start import RaySession
from experiments.execution.ray.worker import WorkerContext, train_alone
from experiments.execution.signals import Stop
from experiments.execution.staging import Staged
from experiments.execution.worker import Pace
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.failures import Failure
from experiments.scheduling.jobs import Job, PackEnd
from results.run_state.claims import Claims

_LISTEN_SECONDS = 0.2
_POLL_EVERY = round(POLL_SECONDS / _LISTEN_SECONDS)
_TRIALS_A_TUNER = 1000
_SILENT = 2
"""Times ``Pace.hang`` after which a process that does not ask for control is ended."""


class RayTune:
    """One Tuner for packs of one layout on a connected Ray."""

    def __init__(
        self, context: ExecutorContext, layout: Layout, *, session: RaySession, staged: Staged
    ) -> None:
        """
        Raises:
            ExperimentError: the cluster can never place a pack of this layout.
        """
        self.layout = demand.with_gpus(layout)
        demand.refuse_impossible(self.layout)
        self.slots = demand.slots(self.layout)
        self.device = "cuda" if self.layout.gpus_per_worker else "cpu"
        location = context.location
        shared = session.single_machine or not location.local
        self._mailbox = beside_driver(Mailbox)
        self._context = WorkerContext(
            mailbox=self._mailbox,
            writer=None if shared else beside_driver(Writer, location, session.processes),
            location=location,
            processes=session.processes,
            staged=staged,
            layout=self.layout,
            trainer=context.trainer,
            pace=context.pace or Pace(),
        )
        self._claims = Claims(location)
        self._pace = self._context.pace
        self._ended: dict[str, float] = {}
        """Packs whose processes were ended because they did not answer, and for how long."""
        self._draining = threading.Lock()
        self._error: Exception | None = None
        self._on_this_machine = session.single_machine
        self._killed_before = killed_for_memory()

    def run(self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]) -> None:
        """Train until the dispatcher has no more packs, is stopped, or ``stop`` is set."""
        dispatcher.share = lambda pack, hits: self._mailbox.share.remote(pack, hits)
        dispatcher.give = lambda pack, more: self._mailbox.give.remote(pack, more)
        with self._listening(dispatcher, stop, poll):
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
            send=lambda job: ray.get(self._mailbox.put.remote(job)),
            drain=lambda: self._drain(dispatcher),
            slots=lambda: demand.slots(self.layout),
            limit=_TRIALS_A_TUNER,
            explain=lambda trial, pack: self._explain(
                progress.error_of(trial), pack, dispatcher.deaths(pack) + 1
            ),
        )
        if self.layout.workers > 1:
            from experiments.execution.ray.group import train_group as function
        else:
            function = train_alone
        with tempfile.TemporaryDirectory(prefix="batchscale-tune-") as folder, _quiet():
            tune.Tuner(
                tune.with_resources(
                    tune.with_parameters(function, context=self._context),
                    tune.PlacementGroupFactory([demand.tune_resources(self.layout)]),
                ),
                tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1, reuse_actors=True),
                run_config=tune.RunConfig(
                    name="packs",
                    storage_path=str(Path(folder).resolve()),
                    callbacks=[progress],
                    # The dispatcher decides what becomes of the trials of a dead worker.
                    failure_config=tune.FailureConfig(max_failures=0),
                    verbose=0,
                ),
            ).fit()

    def _explain(self, text: str, pack: str, times: int) -> Failure:
        """Why a pack's worker ended without a message; with its log if it ran here."""
        self._claims.abandon(pack)
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

    def _drain(self, dispatcher: Dispatcher) -> None:
        with self._draining:
            for message in ray.get(self._mailbox.drain.remote()):
                dispatcher.receive(message)

    def _end_silent(self, stopped: float | None) -> None:
        """End the processes that do not answer: for too long, or soon after a request to stop."""
        seconds = _SILENT * self._pace.hang
        if stopped is not None and time.monotonic() - stopped >= self._pace.stop:
            seconds = self._pace.stop
        for pack, worker in ray.get(self._mailbox.silent.remote(seconds)):
            self._ended[pack] = seconds
            ray.kill(worker)

    @contextmanager
    def _listening(
        self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]
    ) -> Iterator[None]:
        """Beside Tune's loop: receive messages, pass on a stop, poll other drivers."""
        over = threading.Event()

        def listen() -> None:
            rounds, stopped = 0, None
            while not over.wait(_LISTEN_SECONDS):
                rounds += 1
                try:
                    self._drain(dispatcher)
                    if stop or dispatcher.stopped:
                        stopped = stopped or time.monotonic()
                        self._mailbox.stop.remote()
                    if rounds % _POLL_EVERY == 0:
                        self._end_silent(stopped)
                        poll()
                except Exception as error:  # raised in the sweep, once Tune has ended
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


class PackSearcher(Searcher):
    """Suggests packs to Ray Tune, as few at a time as can be placed, so that each has the latest
    results. Tune's own state is not used: the dispatcher decides from the dataset.

    Args:
        send: puts a job into the mailbox of its worker.
        drain: takes in all messages of the workers.
        slots: how many packs can be out.
        limit: after so many it ends, since Tune's bookkeeping grows with their number.
        explain: why a worker ended without a message, by the ids of its Tune trial and its pack.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        stop: Stop,
        *,
        send: Callable[[Job], None],
        drain: Callable[[], None],
        slots: Callable[[], int],
        limit: int,
        explain: Callable[[str, str], Failure],
    ) -> None:
        super().__init__(metric="trials", mode="max")
        self._dispatcher, self._stop = dispatcher, stop
        self._send, self._drain, self._slots = send, drain, slots
        self._left = limit
        self._explain = explain
        self._out: dict[str, str] = {}

    def suggest(self, trial_id: str) -> Any:
        if self._stop or self._left <= 0:
            return str(Searcher.FINISHED)
        if len(self._out) >= self._slots():
            return None
        answer = self._dispatcher.next()
        if answer is None:
            return str(Searcher.FINISHED)
        if answer == "wait":
            return None
        self._send(answer)
        self._left -= 1
        self._out[trial_id] = answer.pack.id
        return {"pack": answer.pack.id}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        del result, error
        pack = self._out.pop(trial_id, None)
        if pack is None:
            return
        self._drain()
        if self._dispatcher.is_out(pack):  # its worker ended without a message
            failure = self._explain(trial_id, pack)
            self._dispatcher.receive(PackEnd(pack=pack, end="failed", failure=failure))

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune saves its searcher, but it is never read."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a new run asks the dataset."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: see ``save``."""


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


class _Silent(TrialProgressCallback):
    """Replaces the one that prints, since the display is ours; it has Tune's trials."""

    _trials: Sequence[Any] = ()

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        """Before Tune takes in what has happened."""
        del iteration
        self._trials = trials

    def error_of(self, trial: str) -> str:
        """The text that Tune has kept of a trial's last error."""
        for each in self._trials:
            if each.trial_id == trial and each.error_file and Path(each.error_file).exists():
                text = Path(each.error_file).read_text(encoding="utf-8", errors="replace")
                return text.rpartition("Failure # ")[2].partition("\n")[2]
        return ""

    def log_result(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """Nothing."""
