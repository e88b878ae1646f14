"""Meetings of ranks at which a failure of any is known to all, and survived.

A rank that runs out of memory in a forward pass leaves the others waiting in the middle of a
collective operation. Here it leaves the process group; their operations fail at once, or, where
torch keeps the connections open, after ``attempt_seconds``. All meet at the store, which needs no
process group, and make a new one.
"""

from __future__ import annotations

import gc
import uuid
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from experiments.parallel.composed import forget_meshes
from experiments.parallel.ranks import Ranks, TorchRanks

_DEFAULT_TIMEOUT = timedelta(minutes=30)
"""As torch's."""


attempt_seconds = 60.0
"""Most seconds that a rank waits for the others in an operation of an attempt."""


class Meeting:
    """The ranks of the default process group. Every rank makes one, calls it as often, and closes
    it; in between operations fail that wait for longer than ``attempt_seconds``."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._count = ranks, 0
        self._alone = not isinstance(ranks, TorchRanks) or ranks.size == 1
        if self._alone:
            return
        # What the store holds of an earlier meeting must not be taken for this one's.
        self._name = ranks.agree(uuid.uuid4().hex)
        self._store = dist.distributed_c10d._get_default_store()
        self._backend = dist.get_backend_config()
        self._timeout = _timeout()
        self._renew(timedelta(seconds=attempt_seconds))

    def exchange(self, failure: str | None) -> list[str | None]:
        """Each rank's ``failure``, by rank. Where any has failed, all are in a new process group
        when this returns: objects that hold the former one must be gone by now.

        Raises:
            torch.distributed.DistError: a rank has died, or does not come.
        """
        if self._alone:
            return [failure]
        if failure is not None:
            leave()
        self._count += 1
        failures = [said or None for said in self._gather("failures", failure or "")]
        if any(failures):
            self._renew(timedelta(seconds=attempt_seconds))
        return failures

    def close(self) -> None:
        """Go on in a process group as it was before."""
        if not self._alone:
            self.exchange(None)  # none leaves while another is in its last operation
            self._count += 1
            self._renew(self._timeout)

    def _gather(self, name: str, said: str) -> list[str]:
        """What each rank says, by rank; waits until all have."""
        store = dist.PrefixStore(name, self._place())
        store.set(str(self._ranks.rank), said)
        everyone = [str(rank) for rank in range(self._ranks.size)]
        store.wait(everyone, self._timeout)
        return [store.get(rank).decode() for rank in everyone]

    def _place(self) -> dist.Store:
        return dist.PrefixStore(f"meeting/{self._name}/{self._count}", self._store)

    def _renew(self, timeout: timedelta) -> None:
        leave()
        dist.init_process_group(
            self._backend,
            store=dist.PrefixStore("group", self._place()),
            rank=self._ranks.rank,
            world_size=self._ranks.size,
            timeout=timeout,
        )
        # Gloo returns to a rank as soon as its own connections stand. One that leaves then, with an
        # error of its own, would break those that others are still making.
        self._gather("connected", "")


def leave() -> None:
    """Close the process groups; what other ranks wait for from this one then fails."""
    forget_meshes()
    if dist.is_initialized():
        with suppress(Exception):  # what is broken is given up all the same
            dist.destroy_process_group()
    gc.collect()  # a connection closes with the last reference to its group


def _timeout() -> timedelta:
    group = dist.group.WORLD
    try:
        backend = group._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        timeout: timedelta = backend.options._timeout
    except (AttributeError, RuntimeError):  # a backend without options
        return _DEFAULT_TIMEOUT
    return timeout
