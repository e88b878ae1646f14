"""Which executors a sweep has: this process, or those of a Ray that it starts or joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from experiments.execution.executors import Executor
from experiments.execution.staging import staged
from experiments.execution.worker import MakeTrainer, Pace
from experiments.plan import Layout
from results.storage.location import Location

if TYPE_CHECKING:
    from experiments.execution.executors.ray_start import LocalRay

Executors = dict[Layout, Executor]
"""One for each layout there is: packs of one demand are placed together."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What executors are made of."""

    location: Location
    layouts: Sequence[Layout]
    base: str | None
    """The experiment's folder."""
    specs: Sequence[str]
    """The workloads, optimizers and schedules that are named by their files."""
    files: Sequence[str]
    trainer: MakeTrainer
    pace: Pace | None

    def local_ray(
        self, address: str, num_cpus: int | None
    ) -> AbstractContextManager[LocalRay | None]:
        """The Ray of ``auto``."""
        if address != "auto":
            return nullcontext()
        from experiments.execution.executors.ray_start import LocalRay

        return LocalRay(num_cpus)

    def meanwhile(self) -> Executors:
        """What this process trains while Ray starts: the first trials end before Ray has a worker.

        Models of a user's files wait for the workers: what they do to a process is a worker's to
        bear.
        """
        small = [each for each in self.layouts if each.workers == 1 and not each.gpus_per_worker]
        return {} if self.specs or torch.cuda.is_available() else self._in_process(small[:1])

    @contextmanager
    def open(
        self, address: str, local_ray: LocalRay | None, say: Callable[[str], None]
    ) -> Iterator[Executors]:
        """Those of the Ray at ``address``, or of this process (``none``).

        Args:
            say: gets what goes on.
        """
        if address == "none":
            say("loading the first workload")
            yield self._in_process(self.layouts)
            return
        from experiments.execution.executors.ray_session import session

        say("starting Ray on this machine" if address == "auto" else f"joining {address}")
        with (
            staged(self.base, self.specs, self.files) as files,
            session(address, files, local_ray) as connected,
        ):
            from experiments.execution.executors.ray_tune import RayTune

            say("waiting for the first worker")
            yield {
                layout: RayTune(
                    self.location, connected, files, layout, trainer=self.trainer, pace=self.pace
                )
                for layout in self.layouts
            }

    def _in_process(self, layouts: Sequence[Layout]) -> Executors:
        from experiments.execution.executors.in_process import InProcess

        return {
            layout: InProcess(self.location, layout, trainer=self.trainer, pace=self.pace)
            for layout in layouts
        }
