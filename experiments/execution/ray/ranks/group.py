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

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from experiments.execution.ray.lost_workers import explain, killed_for_memory, worker_log
from experiments.execution.ray.mailbox import summary
from experiments.scheduling.messages import Failure, Note, Over

if TYPE_CHECKING:
    from experiments.execution.ray.ranks.rank import Place

_RETRIES = 2
"""Retries of a pack whose ranks die, in a row and without progress in between."""
_WAIT_SECONDS = 0.25
_START_SECONDS = 300.0
"""Timeout of the start of ranks that have their places."""
_NOTICE_SECONDS = 30.0
"""Seconds that ranks have to end, and rank 0 to commit what has finished, once another has failed
or died."""
_STOP_SECONDS = 8.0
"""Seconds that the ranks have to end after a request to stop. Then they hang, or write a snapshot
that is too large for an interruption: the one before that is kept."""


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
    ray.get(context.mailbox.post.remote(_group.train(pack)))
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

    def train(self, pack: str) -> Over:
        """Train a pack through the deaths of ranks; how it has ended."""
        deaths, progress = 0, ray.get(self._mailbox.progress.remote(pack))
        while True:
            try:
                self._bring_up()
                if deaths:  # the rank 0 before may have died with its claim
                    self._wait_for("abandon", {0: (pack,)})
                return self._run(pack)
            except _StopRequestedError:
                return Over(pack=pack, end="stopped")
            except RankDiedError as death:
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

    def _bring_up(self) -> None:
        """Start the ranks that are missing, and connect all. After an exception of a pack they are
        there, without a process group."""
        if self._connected:
            return
        for rank in range(self._size):
            if self._ranks[rank] is None:
                self._ranks[rank] = self._start(rank)
        every = range(self._size)
        places: dict[int, Place] = self._wait_for("place", dict.fromkeys(every, ()))
        addresses = [places[rank].address for rank in every]
        if len({place.node for place in places.values()}) == 1:
            addresses = ["127.0.0.1"] * self._size
        port = self._wait_for("open_store", {0: (addresses[0],)})[0]
        meeting = {rank: (addresses[0], port, addresses[rank]) for rank in every}
        self._wait_for("join", meeting)
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

    def _wait_for(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
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
            if refs and ray.get(self._mailbox.stopping.remote()):
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

    def _run(self, pack: str) -> Over:
        """Let the ranks train a pack; how it has ended.

        Raises:
            RankDiedError: a rank was lost, and the pack is to go on.
        """
        assignment = self._mailbox.ask.remote(pack)  # the same for all ranks
        calls = {
            actor.call.remote("train", assignment): rank
            for rank, actor in enumerate(self._ranks)
            if actor is not None
        }
        ends, dead = self._wait_for_ends(calls)
        if 0 in ends and ends[0].end != "failed":
            if dead:
                self._kill(dead)
            return ends[0]
        self._connected = False
        failure = find_cause(self._size, ends, dead, self._context.timeout)
        if failure is None:
            # All begin anew: the ranks of a group remember the same things, as engines tried.
            self._kill(range(self._size))
            rank = min(dead, default=0)
            raise RankDiedError(rank, dead.get(rank, ""))
        return Over(pack=pack, end="failed", failure=failure)

    def _wait_for_ends(self, calls: dict[Any, int]) -> tuple[dict[int, Over], dict[int, str]]:
        """Wait until rank 0 has ended the pack, or all ranks have failed or died: how each has
        ended, and Ray's text of those that died. One that does neither once another has is ended:
        what it waits for does not come.

        Raises:
            _StopRequestedError: the driver has asked to stop, and the ranks do not.
        """
        ends: dict[int, Over] = {}
        dead: dict[int, str] = {}
        failed, stopped = math.inf, math.inf
        while calls and not (0 in ends and ends[0].end != "failed"):
            for ref in ray.wait(list(calls), timeout=_WAIT_SECONDS)[0]:
                rank = calls.pop(ref)
                try:
                    ends[rank] = ray.get(ref)
                except RayError as error:
                    dead[rank] = str(error)
            now = time.monotonic()
            if ray.get(self._mailbox.stopping.remote()):
                stopped = min(stopped, now)
            if dead or any(end.end == "failed" for end in ends.values()):
                failed = min(failed, now)
            if now - stopped > _STOP_SECONDS:
                self._kill(range(self._size))
                raise _StopRequestedError
            if now - failed > _NOTICE_SECONDS:
                self._kill(calls.values())
                calls.clear()
        return ends, dead

    def _explain(self, text: str, times: int) -> Failure:
        """Why ranks died; with the log of the last one, if it ran on this machine."""
        if not text:
            return explain("the ranks of its group lost each other", times=times)
        node = getattr(ray._private.worker, "_global_node", None)
        log = worker_log(text, Path(node.get_logs_dir_path())) if node is not None else None
        now, before = killed_for_memory(), self._killed_before
        ended = now - before if log is not None and now is not None and before is not None else None
        return explain(text, times=times, log=log, killed=ended)


def find_cause(
    size: int, ends: Mapping[int, Over], dead: Mapping[int, str], timeout: float
) -> Failure | None:
    """Why a pack failed, once each rank has failed or died, or has been ended; ``None``: ranks were
    lost, and the pack goes on with others.

    When a rank raises or dies, the collective operations of the others fail too. What those raise
    is a consequence, and is never taken for a failure of the user's code.

    Args:
        size: ranks of the group.
        ends: in the order in which they came.
        dead: ranks whose process has ended.
        timeout: seconds that a rank waits for the others in a collective operation.
    """
    failures = [] if dead else [end.failure for end in ends.values() if end.failure is not None]
    for failure in failures:
        if failure.cause not in ("lost", "hung"):
            return failure
    silent = sorted(set(range(size)) - ends.keys())
    if silent and any(failure.cause == "hung" for failure in failures):
        return hanging(silent, size, timeout)
    return None


def hanging(ranks: Sequence[int], size: int, timeout: float) -> Failure:
    """The failure of a pack whose other ranks waited in vain for these."""
    which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    message = f"{which} of {size} hung: the others waited {timeout:g} s for it"
    return Failure(
        message=message if len(ranks) == 1 else message.removesuffix("it") + "them",
        hint="code that only some ranks run must not wait, nor communicate",
        traceback=message,
        cause="hung",
    )


def killed(rank: int, size: int, failure: Failure, deaths: int) -> Failure:
    """The failure of a pack of which a rank's process ended, so many times in a row."""
    return replace(failure, message=f"rank {rank} of {size}: {failure.message}", deaths=deaths)
