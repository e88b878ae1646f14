"""The resources that a pack needs, and whether a cluster can ever provide them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from experiments.errors import ExperimentError
from experiments.plan import Layout
from results.counts import count

_BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""The cluster's description, written by ``ray up`` on the head node."""
_DRIVER_SHARE = 0.001
"""Resource of the driver's node, for the function that only waits for a worker group."""


def with_gpus(layout: Layout) -> Layout:
    """The layout with a whole GPU for each worker, where the cluster has any and it names none."""
    if layout.gpus_per_worker or not any(node.get("GPU") for node in (*_nodes(), *_growth())):
        return layout
    return replace(layout, gpus_per_worker=1.0)


def worker_resources(layout: Layout) -> dict[str, float]:
    """Ray's resources of one worker: one core, and its GPUs."""
    gpus = {"GPU": layout.gpus_per_worker} if layout.gpus_per_worker else {}
    return {"CPU": 1.0, **gpus}


def tune_resources(layout: Layout) -> dict[str, float]:
    """Resources of the Tune function: a single worker trains in it, a group beside it."""
    if layout.workers > 1:
        return {f"node:{ray.util.get_node_ip_address()}": _DRIVER_SHARE}
    return worker_resources(layout)


def slots(layout: Layout) -> int:
    """Packs that the cluster can train at once at its present size; one more if it can grow."""
    need = worker_resources(layout)
    nodes = _nodes()
    workers = sum(_fit(node, need) for node in nodes)
    return max(1, workers // layout.workers + (1 if _growth() else 0))


def refuse_impossible(layout: Layout) -> None:
    """Refuse a demand that the cluster can never meet, grown as far as it may.

    Raises:
        ExperimentError: it names what is needed and what the cluster has.
    """
    need = worker_resources(layout)
    nodes = [*_nodes(), *_growth()]
    if sum(_fit(node, need) for node in nodes) >= layout.workers:
        return
    total = {name: sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU")}
    each = " and ".join(_count(need.get(n, 0), n) for n in ("CPU", "GPU") if need.get(n))
    has = " and ".join(_count(total[name], name) for name in ("CPU", "GPU"))
    many = f"{count(layout.workers, 'worker')} with {each} each" if layout.workers > 1 else each
    machines = count(len(nodes), "machine")
    raise ExperimentError(
        f"the experiment asks for {many}; the cluster has {has} on {machines}",
        hint="set fewer workers, or give the --address of a larger cluster",
    )


def _nodes() -> list[Mapping[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _growth() -> list[Mapping[str, float]]:
    """The nodes that an autoscaler may still start, where ``ray up`` made this cluster."""
    path = _BOOTSTRAP.expanduser()
    if not path.exists():
        return []
    import yaml

    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    head = config.get("head_node_type")
    return [
        kind.get("resources", {})
        for name, kind in config.get("available_node_types", {}).items()
        if name != head
        for _ in range(int(kind.get("max_workers", config.get("max_workers", 0))))
    ]


def _fit(node: Mapping[str, float], need: Mapping[str, float]) -> int:
    """Workers of a demand that fit on a node."""
    return int(min(node.get(name, 0.0) / amount for name, amount in need.items()))


def _count(amount: float, name: str) -> str:
    if amount == 0:
        return f"no {name}"
    return f"{amount:g} {name}" + ("s" if amount != 1 else "")
