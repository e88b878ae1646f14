"""Machines of a growing cluster are asked for before there are packs for them.

An autoscaler starts machines for what waits for resources. But a first pack must show that its code
runs before others are handed out: a cluster that begins with nothing would start one machine, and
the others only minutes later. Until then placement groups wait in the packs' place. One that gets a
place gives it up at once: the machine is there, and stays a while although it is idle. They belong
to the driver: if it dies, nothing goes on asking for machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.util import placement_group, placement_group_table, remove_placement_group


class Requests:
    """Placement groups of a pack's resources each.

    Args:
        count: how many.
        worker: Ray's resources of one worker.
        workers: workers of a pack.
    """

    def __init__(self, count: int, worker: Mapping[str, float], workers: int) -> None:
        self._waiting: list[Any] = [
            placement_group([dict(worker)] * workers, strategy="PACK") for _ in range(count)
        ]

    def __len__(self) -> int:
        return len(self._waiting)

    def reduce(self, most: int) -> None:
        """Give up those that have got a place, and all beyond ``most``."""
        left: list[Any] = []
        for group in self._waiting:
            waits = placement_group_table(group).get("state") in ("PENDING", "PREPARED")
            if waits and len(left) < most:
                left.append(group)
            else:
                remove_placement_group(group)
        self._waiting = left
