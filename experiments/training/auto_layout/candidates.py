"""The layouts that a number of workers and a workload allow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from experiments.parallel import DIMENSIONS
from experiments.parallel.composed import MESH
from experiments.plan import Layout
from workloads import LayoutPlan


def candidates(workers: int, plan: LayoutPlan | None, *, data_alone: bool) -> list[Layout]:
    """Every layout whose ranks are ``workers`` and that can cut the model, the one with the most
    data ranks first.

    Args:
        plan: what the workload says of cutting its model.
        data_alone: models are trained in stacks, or a technique sums their gradients, which data
            parallelism alone can.
    """
    made = [Layout(workers=workers)]
    if data_alone:
        return made
    dimensions = DIMENSIONS.packaged
    switches = [name for name, kind in dimensions.items() if kind.switch]
    for sizes in _products(workers, len(MESH)):
        mesh = {name: size for name, size in zip(MESH, sizes, strict=True) if size > 1}
        for switched in ({}, *({name: 1} for name in switches)):
            of = {**mesh, **switched}
            others = of.keys() - {"data"}
            if others and not any(dimensions[name].refusal(of, plan) for name in others):
                made.append(Layout(workers=workers, dimensions=tuple(of.items())))
    return made


def _products(total: int, factors: int) -> Iterator[tuple[int, ...]]:
    """All ``factors`` positive integers with this product, the largest first ones first."""
    if factors == 1:
        yield (total,)
        return
    for first in range(total, 0, -1):
        if total % first == 0:
            for rest in _products(total // first, factors - 1):
                yield (first, *rest)


def largest_share(examples: int, layout: Layout, unit: int) -> int:
    """Most examples of a global batch that a rank has, in whole units (ghost batches)."""
    sizes: Mapping[str, int] = dict(layout.dimensions) or {"data": layout.workers}
    copies = math.prod(sizes.get(name, 1) for name in ("data", "shard"))
    return max(unit, -(-(examples // unit) // copies) * unit)


def halves(most: int, unit: int) -> Sequence[int]:
    """``most`` examples, half of them, and so on, in whole units, down to one unit."""
    made = [most]
    while made[-1] > unit:
        made.append(max(unit, made[-1] // 2 // unit * unit))
    return made
