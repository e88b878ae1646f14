"""Trains packs here, without Ray: ``--address none``; one after the other, or several on a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from experiments.errors import ExperimentError
from experiments.execution.departure import saying_exits
from experiments.execution.executors.base import POLL_SECONDS, Executor, ExecutorContext
from experiments.execution.ledger import Ledger
from experiments.execution.signals import Stop
from experiments.execution.worker import run_pack
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Channel
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
        queue = _PackQueue(dispatcher, stop, poll)
        while (assignment := queue.next()) is not None:
            study = assignment.pack.study
            trials = f"{study.optimizer_label}, batch size {study.batch_size}"
            how: Any = {"trainer": self._trainer, "pace": self._pace}
            with single_thread(), saying_exits(trials):
                run_pack(assignment, self._ledger, queue.channel, **how)
            queue.check()


class _PackQueue:
    """The dispatcher, as packs of this process see it."""

    def __init__(self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]) -> None:
        self._dispatcher, self._stop, self._poll = dispatcher, stop, poll
        self._errors: list[ResultsError] = []
        self._polled, self._polling = time.monotonic(), threading.Lock()
        self.channel = Channel(send=dispatcher.receive, ask=self._ask)

    def next(self) -> Assignment | None:
        """The next pack, once there is one; ``None``: no more, or the sweep is stopped."""
        while not self._stop:
            answer = self._dispatcher.next()
            if answer != "wait":
                return answer
            time.sleep(POLL_SECONDS)
            self._poll()
        return None

    def _ask(self, before: Assignment) -> Assignment:
        """Called beside the training, about twice a second."""
        with self._polling:
            if time.monotonic() - self._polled >= POLL_SECONDS:
                try:
                    self._poll()
                except ResultsError as error:  # raised in the main thread (``check``)
                    self._errors.append(error)
                    self._dispatcher.stop()
                self._polled = time.monotonic()
        now = self._dispatcher.assigned(before)
        return replace(now, stop=now.stop or bool(self._stop))

    def check(self) -> None:
        """
        Raises:
            ResultsError: what other drivers do could not be read.
        """
        if self._errors:
            raise self._errors[0]


def _check(layout: Layout) -> None:
    if layout.workers > 1:
        raise ExperimentError(
            f"workers: {layout.workers} needs Ray, and --address none runs without it",
            hint="--address auto starts one on this machine; or set workers=1",
        )
    if layout.gpus_per_worker and not torch.cuda.is_available():
        raise ExperimentError(
            "the experiment asks for a GPU, but torch finds none on this machine",
            hint="give the --address of a cluster that has one",
        )
