"""One rank of a worker group: a process that trains its share of many packs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ray
import torch.distributed as dist
from ray.exceptions import RayError

from experiments.execution.failures import describe
from experiments.execution.ray.mailbox import channel
from experiments.execution.ray.ranks import process_group
from experiments.execution.ray.worker import WorkerContext
from experiments.execution.worker import run_pack
from experiments.parallel.ranks import TorchRanks
from experiments.parallel.renewal import leave
from experiments.scheduling.messages import Assignment, Message, Over
from experiments.training.threads import use_single_thread


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank runs."""

    node: str
    address: str


class Rank:
    """An actor. ``train`` returns at the end of a pack, and the process stays for the next one."""

    def __init__(self, rank: int, context: WorkerContext) -> None:
        use_single_thread()
        self._rank, self._context = rank, context
        self._size = context.layout.workers
        # Ray lets a worker see its own GPU alone.
        self._device = "cuda:0" if context.layout.gpus_per_worker else "cpu"
        # GPUs are a program's, and not of the process that starts it.
        own = context.staged.program is None
        self._meets_on = self._device if own else "cpu"
        self._store: dist.Store | None = None
        self._address = process_group.LOOPBACK

    def place(self) -> Place:
        """Its node, and the address of that."""
        node = ray.get_runtime_context().get_node_id()
        return Place(node=node, address=ray.util.get_node_ip_address())

    def open_store(self, address: str) -> int:
        """The port of a new store, on rank 0."""
        leave()
        self._store = store = process_group.open_store(address)
        return store.port

    def join(self, address: str, port: int, here: str) -> None:
        """Join the process group whose store is there. All ranks do it together."""
        self._address = here
        if self._rank:
            self._store = process_group.reach_store(address, port)
        assert self._store is not None
        own_gpu = self._meets_on != "cpu" and float(self._context.layout.gpus_per_worker) >= 1
        process_group.join(
            self._store,
            self._rank,
            self._size,
            address=here,
            # Ranks that share a GPU: NCCL refuses them.
            gpu=self._meets_on if own_gpu else None,
            timeout=self._context.pace.collective,
        )

    def abandon(self, pack: str) -> None:
        """Release the claim that the rank 0 before this one has left at its death."""
        self._context.ledger().abandon(pack)

    def train(self, assignment: Assignment) -> Over:
        """Train a pack; how that has ended, which the group sends on."""
        line = channel(self._context.mailbox)

        def send(message: Message) -> None:
            if not isinstance(message, Over):
                line.send(message)

        try:
            end = run_pack(
                replace(self._context.localize(assignment), device=self._device),
                self._context.ledger(),
                replace(line, send=send, cause=process_group.classify),
                group=TorchRanks(self._meets_on, address=self._address),
                trainer=self._context.trainer,
                pace=self._context.pace,
            )
        except RayError:
            raise
        except (Exception, SystemExit) as error:  # from before the pack's own code
            end = assignment.over("failed", describe(error, cause=process_group.classify(error)))
        if end.end == "failed":
            leave()  # the other ranks, which wait for this one, fail then too
        elif dist.is_initialized():
            process_group.close_subgroups()
        return end
