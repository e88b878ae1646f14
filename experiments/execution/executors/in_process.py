"""Trains packs here, one after the other, without Ray: ``--address none``."""

from __future__ import annotations

import time
from collections import defaultdict

import torch

from experiments.errors import ExperimentError
from experiments.execution.executors import LOOK_SECONDS, Look
from experiments.execution.ledger import FolderLedger
from experiments.execution.signals import Stop
from experiments.execution.worker import MakeTrainer, Pace, run_pack, training
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.jobs import Channel, Control, More
from experiments.training.threads import single_thread
from results.errors import ResultsError
from results.run_state import processes
from results.storage.location import Location


class InProcess:
    """One worker: this process, with one thread, so that bits do not depend on the machine."""

    slots = 1

    def __init__(
        self,
        location: Location,
        layout: Layout,
        *,
        trainer: MakeTrainer = training,
        pace: Pace | None = None,
    ) -> None:
        """
        Raises:
            ExperimentError: several workers, or a GPU where there is none.
        """
        if layout.workers > 1:
            raise ExperimentError(
                f"workers: {layout.workers} needs Ray, and --address none runs without it",
                hint="--address auto starts one on this machine; or set workers=1",
            )
        if layout.gpus_per_worker and not torch.cuda.is_available():
            raise ExperimentError(
                "the experiment asks for a GPU, and torch finds none on this machine",
                hint="give the --address of a cluster that has one",
            )
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        here = {**processes.identify(), "role": "driver"}
        self._ledger = FolderLedger(location, [here])
        self._trainer, self._pace = trainer, pace

    def run(self, dispatcher: Dispatcher, stop: Stop, look: Look) -> None:
        known: dict[str, tuple[int, ...]] = {}
        given: dict[str, list[More]] = defaultdict(list)
        dispatcher.share = known.__setitem__
        dispatcher.give = lambda pack, more: given[pack].append(more)
        failed: list[ResultsError] = []
        looked = time.monotonic()

        def asks(pack: str) -> Control:
            """Polled from beside the training, about twice a second."""
            nonlocal looked
            if time.monotonic() - looked >= LOOK_SECONDS:
                try:
                    look()
                except ResultsError as error:  # raised below, where the sweep is
                    failed.append(error)
                    dispatcher.stop()
                looked = time.monotonic()
            ends = bool(stop) or dispatcher.stopped
            return Control(stop=ends, known=known.get(pack, ()), more=tuple(given[pack]))

        wire = Channel(tell=dispatcher.hear, asks=asks)
        while not stop:
            job = dispatcher.next()
            if job is None:
                return
            if job == "wait":
                time.sleep(LOOK_SECONDS)
                look()
                continue
            known.pop(job.pack.id, None)
            given.pop(job.pack.id, None)
            with single_thread():
                run_pack(job, self._ledger, wire, trainer=self._trainer, pace=self._pace)
            if failed:
                raise failed[0]
