"""The resources that a pack needs, and whether a cluster can ever provide them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import ray

from experiments.errors import ExperimentError
from experiments.plan import Layout
from results.counts import count

_REMEMBERED_SECONDS = 2.0
"""Seconds for which the list of nodes is remembered: Tune asks for packs many times a second."""
_WAIT_SECONDS = 60.0
"""Seconds between two sentences about packs that wait for resources."""
_NAMES = ("CPU", "GPU")

Node = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The nodes of a cluster, and how far an autoscaler may let it grow."""

    nodes: Sequence[Node]
    """Resources of each node that is there."""
    grows_to: int | None = None
    """How many workers the cluster can grow to, as the user says (``--grows-to``)."""

    def with_gpus(self, layout: Layout) -> Layout:
        """The layout with a whole GPU for each worker, where the cluster has any and the experiment
        says nothing of GPUs."""
        if layout.gpus_per_worker == 0.0:
            gpus = any(node.get("GPU") for node in self.nodes)
            return replace(layout, gpus_per_worker=float(gpus))
        return layout

    def worker(self, layout: Layout) -> dict[str, float]:
        """Ray's resources of one worker: a core; or a GPU or a part of one, with that part of
        the cores that its machine has for each GPU."""
        if not layout.gpus_per_worker:
            return {"CPU": 1.0}
        gpus = layout.gpus_per_worker
        cores = [node.get("CPU", 0.0) / node["GPU"] for node in self.nodes if node.get("GPU")]
        # Ray counts in ten-thousandths.
        share = math.floor(min(cores, default=1.0) * gpus * 1000) / 1000
        return {"CPU": share, "GPU": gpus} if share else {"GPU": gpus}

    def slots(self, layout: Layout) -> int:
        """Packs that the cluster trains at once, grown as far as it may; at least one."""
        return max(1, self._workers(self.worker(layout)) // layout.workers)

    def refuse_impossible(self, layout: Layout) -> None:
        """Refuse a demand that the cluster can never meet, grown as far as it may.

        Raises:
            ExperimentError: it names what is needed and what the cluster has.
        """
        need = self.worker(layout)
        if self._workers(need) >= layout.workers:
            return
        if self.grows_to:
            raise ExperimentError(
                f"the experiment asks for {_demand(layout, need)}; the cluster grows to "
                f"{count(self.grows_to, 'worker')}, says --grows-to",
                hint=f"let it grow to {layout.workers}, or set fewer workers",
            )
        raise ExperimentError(
            f"the experiment asks for {_demand(layout, need)}; the cluster has {self}",
            hint="set fewer workers, or give the --address of a larger cluster; if an autoscaler "
            "will start machines, say how many workers they hold: --grows-to 16",
        )

    def __str__(self) -> str:
        return f"{_total(self.nodes)} on {count(len(self.nodes), 'machine')}"

    def _workers(self, need: Mapping[str, float]) -> int:
        """Workers of a demand that the cluster holds, grown as far as it may."""
        return max(_fits(self.nodes, need), self.grows_to or 0)


class Nodes:
    """The connected Ray, whose nodes come and go.

    Args:
        grows_to: see ``Capacity``.
    """

    def __init__(self, grows_to: int | None = None) -> None:
        self._grows_to = grows_to
        self._capacity: Capacity | None = None
        self._read = 0.0

    def capacity(self) -> Capacity:
        """Its nodes, read at most every two seconds."""
        if self._capacity is None or time.monotonic() - self._read > _REMEMBERED_SECONDS:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._capacity = Capacity(nodes=nodes, grows_to=self._grows_to)
            self._read = time.monotonic()
        return self._capacity

    def free(self) -> list[Node]:
        """Resources of each node that nothing holds."""
        return list(ray._private.state.available_resources_per_node().values())


class WaitWatch:
    """Says every minute what packs wait for that have no place.

    Packs that wait while others train only wait for their turn: an autoscaler was asked for more
    than it has started so far. Silence would be wrong where none trains.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._said = 0.0

    def sentence(
        self,
        layout: Layout,
        capacity: Capacity,
        free: Callable[[], Sequence[Node]],
        *,
        out: int,
        running: int,
    ) -> str | None:
        """What is to be said now.

        Args:
            free: called for the free resources of each node, where there may be something to say.
            out: packs that were handed out.
            running: those of them that have a worker.
        """
        now = self._clock()
        if out <= running:
            self._since = None
            return None
        if self._since is None:
            self._since, self._said = now, now
        if now - self._said < _WAIT_SECONDS:
            return None
        need, unused = capacity.worker(layout), free()
        if _fits(unused, need) >= layout.workers:  # its process is being started
            return None
        self._said = now
        return (
            f"{count(out - running, 'pack')} of {out} "
            f"{'has' if out - running == 1 else 'have'} waited {now - self._since:.0f} s for "
            f"{_demand(layout, need)}; the cluster has {capacity}, of which "
            f"{_total(unused)} are free."
        )


def bundles(layout: Layout, worker: Mapping[str, float]) -> list[dict[str, float]]:
    """Resources of the Tune function and of what it starts: a single worker trains in it; the ranks
    of a group beside it, each in a bundle of its own, and it needs none itself."""
    of_worker = dict(worker)
    return [of_worker] if layout.workers == 1 else [{}, *[of_worker] * layout.workers]


def _fits(nodes: Sequence[Node], need: Mapping[str, float]) -> int:
    """Workers of a demand that the nodes hold together."""
    return sum(
        int(min(node.get(name, 0.0) / amount + 1e-6 for name, amount in need.items()))
        for node in nodes
    )


def _demand(layout: Layout, need: Mapping[str, float]) -> str:
    each = " and ".join(_count(need[name], name) for name in _NAMES if need.get(name))
    return f"{count(layout.workers, 'worker')} with {each} each" if layout.workers > 1 else each


def _total(nodes: Sequence[Node]) -> str:
    return " and ".join(_count(sum(n.get(name, 0.0) for n in nodes), name) for name in _NAMES)


def _count(amount: float, name: str) -> str:
    if amount == 0:
        return f"no {name}"
    return f"{amount:g} {name}" + ("s" if amount != 1 else "")
