"""What an executor is: it trains the packs that a dispatcher hands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from experiments.execution.worker import MakeTrainer, Pace
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from results.storage.location import Location
from workloads.user_code.program import Program


class WorkerPool(Protocol):
    """Workers of one layout."""

    slots: int
    """Packs that it trains at once."""
    device: str
    """``cpu`` or ``cuda``: what its workers train on."""

    def run(self, dispatcher: Dispatcher) -> None:
        """Train until the dispatcher has no more packs, or is stopped.

        On return no pack is in training: each is recorded, or kept in a snapshot.
        """


@dataclass(frozen=True, kw_only=True)
class ExecutorContext:
    """What an executor needs of the sweep."""

    location: Location
    """The results folder."""
    layouts: Sequence[Layout]
    base: str | None
    """The experiment's folder."""
    specs: Sequence[str]
    """Workloads, optimizers and schedules of the user's files."""
    files: Sequence[str]
    """More files of the experiment."""
    trainer: MakeTrainer
    pace: Pace | None
    num_cpus: int | None
    """Cores of a cluster that is started here; all cores unless given."""
    missing: int
    """Trials that are still to be trained."""
    data_files: Sequence[str] = ()
    """Data files of workloads and techniques (``data_files``)."""
    grows_to: int | None = None
    """How many workers the cluster can grow to, where an autoscaler starts its machines."""
    program: Program | None = None
    """The user's own, which is trained in the place of a workload."""
    callbacks: Sequence[Any] = ()
    """Ray Tune's own (``ray.tune.Callback``)."""
    over: Callable[[], bool] = lambda: False
    """Whether the sweep is to end: nothing that takes long is waited for then."""


class Executor:
    """Where a sweep trains: an address ``NAME`` or ``NAME://…`` names one, as a file does.

    A subclass gives ``pool``. It is a context manager around all packs: a slow start begins in
    ``__enter__``.
    """

    name: ClassVar[str]
    """Its name in an address; an executor of a user's file needs none."""

    def __init__(self, address: str, context: ExecutorContext) -> None:
        self.address, self.context = address, context

    @classmethod
    def check(cls, layouts: Iterable[Layout]) -> None:
        """Called before a new experiment is written to the results.

        Raises:
            ExperimentError: it can have no workers of one of the layouts, wherever it runs.
        """

    @classmethod
    def expected_device(cls) -> str | None:
        """``cpu`` or ``cuda``, where it is known beforehand on which its workers train."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what was started."""

    @property
    def ready(self) -> bool:
        """Whether ``connect`` need not wait."""
        return True

    def until_ready(self) -> Mapping[Layout, WorkerPool]:
        """The pool that trains until it is ready."""
        return {}

    @contextmanager
    def connect(self, report: Callable[[str], None]) -> Iterator[Mapping[Layout, WorkerPool]]:
        """Its workers for each layout.

        Args:
            report: takes what is being done, for the display.
        """
        report("loading the first workload")
        yield self.pools()

    def pools(self, **arguments: Any) -> Mapping[Layout, WorkerPool]:
        """``pool`` for each layout of the sweep."""
        return {layout: self.pool(layout, **arguments) for layout in self.context.layouts}

    def pool(self, layout: Layout) -> WorkerPool:
        """The workers that train the packs of a layout.

        Raises:
            ExperimentError: there can be none.
        """
        raise NotImplementedError
