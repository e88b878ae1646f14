"""One rank of a worker group: a process that trains its share of many packs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import partial

import ray
import torch.distributed as dist
from ray.exceptions import RayError

from experiments.execution.failures import describe
from experiments.execution.ray.mailbox import channel
from experiments.execution.ray.ranks import process_group
from experiments.execution.ray.ranks.verdict import Report, Verdict
from experiments.execution.ray.worker import WorkerContext
from experiments.execution.worker import run_pack
from experiments.parallel.ranks import TorchRanks
from experiments.scheduling.messages import Failure, Over, RankLostError
from experiments.training.threads import use_single_thread

_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank runs."""

    node: str
    address: str
    pid: int


class Rank:
    """An actor. ``train`` returns at the end of a pack, and the process stays for the next one."""

    def __init__(self, rank: int, context: WorkerContext) -> None:
        use_single_thread()
        self._rank, self._context = rank, context
        self._size = context.layout.workers
        # Ray lets a worker see its own GPU alone.
        self._device = "cuda:0" if context.layout.gpus_per_worker else "cpu"
        self._store: dist.Store | None = None

    def place(self) -> Place:
        """Its node, the address of that, its process."""
        node = ray.get_runtime_context().get_node_id()
        return Place(node=node, address=ray.util.get_node_ip_address(), pid=os.getpid())

    def open_store(self, address: str) -> int:
        """The port of a new store, on rank 0."""
        process_group.leave()
        self._store = store = process_group.open_store(address)
        return store.port

    def join(self, address: str, port: int, here: str) -> None:
        """Join the process group whose store is there. All ranks do it together."""
        if self._rank:
            self._store = process_group.reach_store(address, port)
        assert self._store is not None
        process_group.join(
            self._store,
            self._rank,
            self._size,
            address=here,
            # Ranks that share a GPU: NCCL refuses them.
            gpu=self._device if float(self._context.layout.gpus_per_worker) >= 1 else None,
            timeout=self._context.pace.collective,
        )

    def abandon(self, pack: str) -> None:
        """Release the claim that the rank 0 before this one has left at its death."""
        self._context.ledger().abandon(pack)

    def train(self, pack: str, attempt: str) -> bool:
        """Train a pack; whether it has ended: ``False`` if ranks were lost before that.

        Args:
            attempt: names this try, among all of its packs.
        """
        line = replace(channel(self._context.mailbox), cause=partial(self._cause, pack, attempt))
        try:
            try:
                run_pack(
                    replace(self._context.job(pack), device=self._device),
                    self._context.ledger(),
                    line,
                    group=TorchRanks(self._device),
                    trainer=self._context.trainer,
                    pace=self._context.pace,
                )
            except (RayError, RankLostError):
                raise
            except (Exception, SystemExit) as error:  # from before the pack's own code
                failure = line.cause(describe(error), error)
                if self._rank == 0:
                    line.send(Over(pack=pack, end="failed", failure=failure))
        except RankLostError:
            return False
        if dist.is_initialized():
            process_group.close_subgroups()
        return True

    def _cause(self, pack: str, attempt: str, failure: Failure, error: BaseException) -> Failure:
        """What this rank's exception means: on rank 0, when all ranks have been heard.

        Raises:
            RankLostError: it is the consequence of a lost rank.
        """
        mailbox, kind = self._context.mailbox, process_group.classify(error)
        report = Report(rank=self._rank, failure=failure, error=kind)
        ray.get(mailbox.report.remote(pack, attempt, report))
        error.__traceback__ = None  # its frames hold what holds the connections
        process_group.leave()
        if self._rank:
            return failure
        verdict: Verdict | None = None
        while verdict is None:
            time.sleep(_POLL_SECONDS)
            verdict = ray.get(mailbox.verdict.remote(pack, attempt))
        if verdict.failure is None:
            raise RankLostError
        return verdict.failure
