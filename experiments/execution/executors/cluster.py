"""Trains packs on a Ray cluster that runs already: ``--address HOST:PORT``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experiments.execution.executors.base import Executor, WorkerPool
from experiments.execution.staging import staged
from experiments.plan import Layout

if TYPE_CHECKING:
    from experiments.execution.ray.start import LocalRay


class Cluster(Executor):
    """The Ray cluster that listens there."""

    name = "HOST:PORT"
    local: LocalRay | None = None
    """Finds or starts the cluster, if no address names it."""

    @contextmanager
    def connect(self, report: Callable[[str], None]) -> Iterator[Mapping[Layout, WorkerPool]]:
        from experiments.execution.ray import start

        report(f"joining {self.address}" if self.local is None else "starting Ray on this machine")
        context = self.context
        if self.local is not None and not self.local.wait(context.over):
            yield {}
            return
        with (
            staged(
                context.base, context.specs, context.files, context.data_files, context.program
            ) as files,
            start.session(self.address, files, self.local) as connected,
        ):
            report("waiting for the first worker")
            yield self.pools(session=connected, staged=files)

    def pool(self, layout: Layout, **connection: Any) -> WorkerPool:
        from experiments.execution.ray.tune import RayTune

        return RayTune(self.context, layout, **connection)
