"""Trains packs here, without Ray: ``--address none``; one after the other, or several on a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from experiments.errors import ExperimentError
from experiments.execution.executors.base import Executor, ExecutorContext
from experiments.execution.ledger import Ledger
from experiments.execution.polling import POLL_SECONDS
from experiments.execution.process_end import saying_exits
from experiments.execution.worker import run_pack
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Channel
from experiments.training.threads import single_thread
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
            if layout.workers > 1:
                raise ExperimentError(
                    f"workers: {layout.workers} needs Ray, and --address none runs without it",
                    hint="--address auto starts one on this machine; or set workers=1, or nodes=1",
                )
            if layout.gpus_per_worker and not torch.cuda.is_available():
                raise ExperimentError(
                    "the experiment asks for a GPU, but torch finds none on this machine",
                    hint="give the --address of a cluster that has one",
                )

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
        InProcess.check([layout])
        self.device = InProcess.expected_device()
        driver = {**processes.identify(), "role": "driver"}
        self._ledger = Ledger(context.location, [driver])
        self._trainer, self._pace = context.trainer, context.pace

    def run(self, dispatcher: Dispatcher) -> None:
        channel = Channel(send=dispatcher.receive, ask=dispatcher.assigned)
        how: Any = {"trainer": self._trainer, "pace": self._pace}
        while (answer := dispatcher.next()) is not None:
            if answer == "wait":
                time.sleep(POLL_SECONDS)
                continue
            study = answer.pack.study
            trials = f"{study.optimizer_label}, batch size {study.batch_size}"
            with single_thread(), saying_exits(trials):
                run_pack(answer, self._ledger, channel, **how)
