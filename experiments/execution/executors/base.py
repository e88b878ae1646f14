"""What an executor is: it trains the packs that a dispatcher hands out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from experiments.execution.signals import Stop
from experiments.execution.worker import MakeTrainer, Pace
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from results.storage.location import Location

POLL_SECONDS = 2.0
"""Between two readings of what other drivers have done and claimed."""


class WorkerPool(Protocol):
    """Workers of one layout."""

    slots: int
    """Packs that it trains at once."""
    device: str
    """``cpu`` or ``cuda``: what its workers train on."""

    def run(self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]) -> None:
        """Train until the dispatcher has no more packs, is stopped, or ``stop`` asks.

        On return no pack is out: each was recorded, or is kept in a snapshot.

        Args:
            poll: reads what other drivers have done and claimed into the dispatcher; to be called
                every ``POLL_SECONDS`` or so.
        """


@dataclass(frozen=True, kw_only=True)
class ExecutorContext:
    """What an executor needs of the sweep."""

    location: Location
    """Where the results go."""
    layouts: Sequence[Layout]
    base: str | None
    """The experiment's folder."""
    specs: Sequence[str]
    """The workloads, optimizers and schedules that are named by their files."""
    files: Sequence[str]
    """More files of the experiment."""
    trainer: MakeTrainer
    pace: Pace | None
    num_cpus: int | None
    """Of a cluster that is started here; all cores unless given."""


class Executor:
    """Where a sweep trains: an address ``NAME`` or ``NAME://…`` names one, as a file does.

    A subclass gives ``pool``. It is a context manager from before the first pack to after the last
    one: what takes long to start begins to start on ``__enter__``.
    """

    name: ClassVar[str]
    """What an address calls it; one of a user's file needs none."""

    def __init__(self, address: str, context: ExecutorContext) -> None:
        self.address, self.context = address, context

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
        """What trains until it is ready."""
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
