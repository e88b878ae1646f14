"""Trains packs here, one after the other, without Ray: ``--address none``."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch

from experiments.errors import ExperimentError
from experiments.execution.executors.base import POLL_SECONDS, Executor, ExecutorContext
from experiments.execution.ledger import Ledger
from experiments.execution.signals import Stop
from experiments.execution.worker import run_pack
from experiments.plan import AUTO, Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.jobs import Channel, Control, More
from experiments.training.threads import single_thread
from results.errors import ResultsError
from results.run_state import processes


class InProcess(Executor):
    """Without Ray, in this process."""

    name = "none"

    @classmethod
    def check(cls, layouts: Iterable[Layout]) -> None:
        """
        Raises:
            ExperimentError: several workers, or a GPU where there is none.
        """
        for layout in layouts:
            _check(layout)

    @classmethod
    def expected_device(cls) -> str:
        return "cuda" if torch.cuda.is_available() else "cpu"

    def pool(self, layout: Layout) -> InProcessPool:
        return InProcessPool(self.context, layout)


class InProcessPool:
    """One worker: this process, with one thread, so that bits do not depend on the machine."""

    slots = 1

    def __init__(self, context: ExecutorContext, layout: Layout) -> None:
        """
        Raises:
            ExperimentError: several workers, or a GPU where there is none.
        """
        _check(layout)
        self.device = InProcess.expected_device()
        driver = {**processes.identify(), "role": "driver"}
        self._ledger = Ledger(context.location, [driver])
        self._trainer, self._pace = context.trainer, context.pace

    def run(self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]) -> None:
        hits: dict[str, tuple[int, ...]] = {}
        more: dict[str, list[More]] = defaultdict(list)
        dispatcher.share = hits.__setitem__
        dispatcher.give = lambda pack, trials: more[pack].append(trials)
        errors: list[ResultsError] = []
        polled = time.monotonic()

        def control(pack: str) -> Control:
            """Polled beside the training, about twice a second."""
            nonlocal polled
            if time.monotonic() - polled >= POLL_SECONDS:
                try:
                    poll()
                except ResultsError as error:  # raised below, in the main thread
                    errors.append(error)
                    dispatcher.stop()
                polled = time.monotonic()
            ends = bool(stop) or dispatcher.stopped
            return Control(stop=ends, hits=hits.get(pack, ()), more=tuple(more[pack]))

        channel = Channel(send=dispatcher.receive, control=control)
        while not stop:
            job = dispatcher.next()
            if job is None:
                return
            if job == "wait":
                time.sleep(POLL_SECONDS)
                poll()
                continue
            hits.pop(job.pack.id, None)
            more.pop(job.pack.id, None)
            with single_thread():
                run_pack(job, self._ledger, channel, trainer=self._trainer, pace=self._pace)
            if errors:
                raise errors[0]


def _check(layout: Layout) -> None:
    if layout.workers > 1:
        raise ExperimentError(
            f"workers: {layout.workers} needs Ray, and --address none runs without it",
            hint="--address auto starts one on this machine; or set workers=1",
        )
    if layout.gpus_per_worker not in (0.0, AUTO) and not torch.cuda.is_available():
        raise ExperimentError(
            "the experiment asks for a GPU, but torch finds none on this machine",
            hint="give the --address of a cluster that has one",
        )
