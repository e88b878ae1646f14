"""Several workers a pack: a pool of ranks that stays up and trains many packs.

A Tune trial is a pack here too. Tune reserves one placement group for it, with a bundle for each
rank: all of them or none, so that groups never wait for each other's parts. The reused Tune actor
needs no resource. It starts the ranks in the bundles, hands them pack after pack, and watches them:
if a rank's process dies, new ones take their places and the pack goes on from its last snapshot.
The ranks belong to the Tune actor, and their resources to Tune: they end with either.

This module imports neither torch, which the Tune actor does not need, nor Tune, which its ranks do
not: the Tune actor starts while the ranks load torch.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from experiments.execution.ray.lost_workers import explain, killed_for_memory, worker_log
from experiments.execution.ray.mailbox import summary
from experiments.execution.ray.ranks.verdict import Report, judge, killed
from experiments.scheduling.messages import Failure, Note, Over

if TYPE_CHECKING:
    from experiments.execution.ray.ranks.rank import Place

_RETRIES = 2
"""Retries of a pack whose ranks die, in a row and without progress in between."""
_WAIT_SECONDS = 0.25
_START_SECONDS = 300.0
"""Timeout of the start of ranks that have their places."""
_NOTICE_SECONDS = 5.0
"""Seconds in which ranks notice that another has raised or died."""
_STOP_SECONDS = 8.0
"""Seconds that the ranks have to end after a request to stop. Then they hang, or write a snapshot
that is too large for an interruption: the one before that is kept."""
_COMMIT_SECONDS = 60.0
"""Seconds in which rank 0 commits what has finished, once it knows why the pack ends."""


@dataclass(frozen=True, kw_only=True)
class GroupContext:
    """The data that a group needs; sent to its Tune actor once."""

    mailbox: Any
    size: int
    """Ranks."""
    resources: Mapping[str, float]
    """Ray's resources of a rank."""
    timeout: float
    """Seconds that a rank waits for the others in a collective operation."""
    ranks: tuple[Any]
    """A reference to the ``WorkerContext`` of the ranks, which the Tune actor does not read."""


_group: WorkerGroup | None = None
"""The group of this Tune actor, which trains its packs one after the other."""


def train_group(config: dict[str, Any], context: GroupContext) -> None:
    """The Tune function of a worker group: trains a pack, and reports what it committed."""
    from ray import tune

    global _group
    if _group is None:
        _group = WorkerGroup(context)
    pack = config["pack"]
    end = _group.train(pack)
    if end is not None:
        ray.get(context.mailbox.post.remote(end))
    tune.report(summary(ray.get(context.mailbox.committed.remote(pack))))


class RankDiedError(Exception):
    """The process of a rank has ended.

    Attributes:
        rank: its rank.
        text: Ray's error.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank, self.text = rank, text


class _StopRequestedError(Exception):
    """The driver asks to stop, and the ranks do not end by themselves."""


class RankProcess:
    """The actor of a rank. Only its own process loads torch, and what trains."""

    def __init__(self, *arguments: Any) -> None:
        from experiments.execution.ray.ranks.rank import Rank

        self._rank = Rank(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the ``Rank`` returns."""
        return getattr(self._rank, method)(*arguments)


class WorkerGroup:
    """Ranks, and the processes behind them."""

    def __init__(self, context: GroupContext) -> None:
        self._context, self._mailbox = context, context.mailbox
        self._size = context.size
        self._ranks: list[Any | None] = [None] * self._size
        self._connected = False
        self._killed_before = killed_for_memory()

    def train(self, pack: str) -> Over | None:
        """Train a pack to its end, through the deaths of ranks.

        Returns:
            The end of the pack, if it is not rank 0 that has sent it.
        """
        deaths, progress = 0, ray.get(self._mailbox.progress.remote(pack))
        while True:
            try:
                self._bring_up(pack)
                if deaths:  # the rank 0 before may have died with its claim
                    self._wait_for("abandon", {0: (pack,)}, pack)
                return self._run(pack)
            except _StopRequestedError:
                return Over(pack=pack, end="stopped")
            except RankDiedError as death:
                if ray.get(self._mailbox.over.remote(pack)):
                    return None
                now = ray.get(self._mailbox.progress.remote(pack))
                deaths = 1 if now > progress else deaths + 1
                progress = max(progress, now)
                if deaths > _RETRIES:
                    explained = self._explain(death.text, deaths)
                    failure = killed(death.rank, self._size, explained, deaths)
                    return Over(pack=pack, end="failed", failure=failure)
                text = "the ranks of its group lost each other"
                if death.text:
                    text = f"rank {death.rank} of {self._size} died"
                note = Note(pack=pack, text=f"{text}: it goes on from its last snapshot")
                self._mailbox.post.remote(note)

    # Ranks

    def _bring_up(self, pack: str) -> None:
        """Start the ranks that are missing, and connect all. After an exception of a pack they are
        there, without a process group."""
        if self._connected:
            return
        for rank in range(self._size):
            if self._ranks[rank] is None:
                self._ranks[rank] = self._start(rank)
        every = range(self._size)
        places: dict[int, Place] = self._wait_for("place", dict.fromkeys(every, ()), pack)
        addresses = [places[rank].address for rank in every]
        if len({place.node for place in places.values()}) == 1:
            addresses = ["127.0.0.1"] * self._size
        port = self._wait_for("open_store", {0: (addresses[0],)}, pack)[0]
        meeting = {rank: (addresses[0], port, addresses[rank]) for rank in every}
        self._wait_for("join", meeting, pack)
        self._connected = True

    def _start(self, rank: int) -> Any:
        need = self._context.resources
        of_tune = get_current_placement_group()
        assert of_tune is not None
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=of_tune, placement_group_bundle_index=rank
        )
        actor: Any = ray.remote(RankProcess).options(
            num_cpus=need.get("CPU", 0.0),
            num_gpus=need.get("GPU", 0.0),
            scheduling_strategy=strategy,
        )
        return actor.remote(rank, *self._context.ranks)

    def _wait_for(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], pack: str
    ) -> dict[int, Any]:
        """What a method of ranks returns.

        Raises:
            RankDiedError: of a rank that dies.
            TimeoutError: ranks have no place any more.
        """
        actors = {rank: actor for rank, actor in enumerate(self._ranks) if actor is not None}
        refs = {actors[r].call.remote(method, *a): r for r, a in arguments.items()}
        answers: dict[int, Any] = {}
        until = time.monotonic() + _START_SECONDS
        while refs:
            done, _ = ray.wait(list(refs), timeout=1.0)
            for ref in done:
                rank = refs.pop(ref)
                try:
                    answers[rank] = ray.get(ref)
                except RayError as error:
                    self._kill(range(self._size))  # the others may wait for it
                    raise RankDiedError(rank, str(error)) from None
            if refs and time.monotonic() > until:
                self._kill(range(self._size))
                # Perhaps a node is lost, and no other has its place: Tune asks for a new one.
                missing = f"{len(refs)} of {self._size} ranks of a group"
                raise TimeoutError(f"{missing} did not start within {_START_SECONDS:g} s")
            if refs and ray.get(self._mailbox.control.remote(pack)).stop:
                raise _StopRequestedError
        return answers

    def _kill(self, ranks: Iterable[int]) -> None:
        """End the processes of ranks. The next pack gets others."""
        self._connected = False
        for rank in ranks:
            actor, self._ranks[rank] = self._ranks[rank], None
            if actor is not None:
                ray.kill(actor)

    # A pack

    def _run(self, pack: str) -> Over | None:
        """Let the ranks train a pack; its end, if rank 0 could not send it.

        Raises:
            RankDiedError: a rank was lost, and the pack is to go on.
        """
        attempt = uuid.uuid4().hex
        pending = {
            actor.call.remote("train", pack, attempt): rank
            for rank, actor in enumerate(self._ranks)
            if actor is not None
        }
        reports, dead = self._listen(pack, attempt, pending)
        if not reports and not dead:
            return None
        self._connected = False
        verdict = judge(self._size, reports, dead, self._context.timeout)
        ray.get(self._mailbox.settle.remote(pack, attempt, verdict))
        first = [ref for ref, rank in pending.items() if rank == 0]
        ends_itself = bool(first) and bool(ray.wait(first, timeout=_COMMIT_SECONDS)[0])
        if not ends_itself and 0 not in dead:
            self._kill([0])
        if verdict.failure is None:
            # All begin anew: the ranks of a group remember the same things, as engines tried.
            self._kill(range(self._size))
            rank = min(dead, default=0)
            raise RankDiedError(rank, dead.get(rank, ""))
        return None if ends_itself else Over(pack=pack, end="failed", failure=verdict.failure)

    def _listen(
        self, pack: str, attempt: str, pending: dict[Any, int]
    ) -> tuple[Sequence[Report], Mapping[int, str]]:
        """Wait until rank 0 has ended the pack, or until all ranks have reported or died.

        A rank that does neither is killed: what it waits for does not come. Rank 0 is the last, and
        has longer, since it commits what has finished.

        Args:
            pending: the ranks' calls, of which those that have returned are taken out.

        Raises:
            _StopRequestedError: the driver has asked to stop, and the ranks do not.
        """
        reports: list[Report] = []
        dead: dict[int, str] = {}
        first_news: float | None = None
        stopped: float | None = None
        while True:
            for ref in ray.wait(list(pending), timeout=_WAIT_SECONDS)[0]:
                rank = pending.pop(ref)
                try:
                    ray.get(ref)
                except RayError as error:
                    dead[rank] = str(error)
            reports, stop = ray.get(self._mailbox.reports.remote(pack, attempt))
            reported = {report.rank for report in reports}
            silent = set(pending.values()) - reported
            if not {0} & {*silent, *reported, *dead}:  # it has ended the pack
                if reported or dead:
                    self._kill(dead)
                return [], {}
            if not silent:
                return reports, dead
            now = time.monotonic()
            stopped = stopped or (now if stop else None)
            if stopped is not None and now - stopped > _STOP_SECONDS:
                self._kill(range(self._size))
                raise _StopRequestedError
            if not reports and not dead:
                continue
            first_news = first_news or now
            waited = now - first_news
            of_user = any(report.error == "raised" for report in reports)
            if waited > (_COMMIT_SECONDS if of_user else 2 * _NOTICE_SECONDS):
                self._give_up(silent, pending)
            elif waited > _NOTICE_SECONDS:
                self._give_up(range(1, self._size) if 0 in silent else silent, pending)

    def _give_up(self, ranks: Iterable[int], pending: dict[Any, int]) -> None:
        for ref in [ref for ref, rank in pending.items() if rank in ranks]:
            del pending[ref]
        self._kill(ranks)

    def _explain(self, text: str, times: int) -> Failure:
        """Why ranks died; with the log of the last one, if it ran on this machine."""
        if not text:
            return explain("the ranks of its group lost each other", times=times)
        node = getattr(ray._private.worker, "_global_node", None)
        log = worker_log(text, Path(node.get_logs_dir_path())) if node is not None else None
        now, before = killed_for_memory(), self._killed_before
        ended = now - before if log is not None and now is not None and before is not None else None
        return explain(text, times=times, log=log, killed=ended)
