"""Between the driver and its Ray workers: jobs and control go out, messages come back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from experiments.execution.ledger import Ledger
from experiments.execution.ray.ranks.verdict import Report, Verdict
from experiments.plan import Outcome
from experiments.scheduling.messages import (
    Begun,
    Channel,
    Control,
    Ended,
    Job,
    Message,
    More,
    Over,
    Refused,
)
from results.run_state.processes import identify
from results.storage.location import Location


class Mailbox:
    """An actor beside the driver; every method is quick."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._messages: list[Message] = []
        self._hits: dict[str, tuple[int, ...]] = {}
        self._more: dict[str, tuple[More, ...]] = {}
        self._committed: dict[str, tuple[Outcome, ...]] = {}
        self._began: dict[str, int] = {}
        self._begun: set[str] = set()
        self._over: set[str] = set()
        self._reports: dict[tuple[str, str], list[Report]] = {}
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._stop = False
        self._workers: dict[str, Any] = {}
        self._heard: dict[str, float] = {}

    def put(self, job: Job) -> None:
        self._jobs[job.pack.id] = job
        self._began.pop(job.pack.id, None)
        self._over.discard(job.pack.id)
        self._hits.pop(job.pack.id, None)
        self._more.pop(job.pack.id, None)
        self._committed.pop(job.pack.id, None)
        self._begun.discard(job.pack.id)

    def get(self, pack: str) -> Job:
        """The job, for a worker that begins; with the trials that a dead worker had been given."""
        self._begun.add(pack)
        for more in self._more.pop(pack, ()):
            self._jobs[pack] = self._jobs[pack].joined_by(more)
        return self._jobs[pack]

    def post(self, message: Message) -> None:
        self._messages.append(message)
        if isinstance(message, Begun):
            self._began[message.pack] = message.step
        if isinstance(message, Over):
            self._over.add(message.pack)
        if isinstance(message, Ended) and message.run:
            earlier = self.committed(message.pack)
            self._committed[message.pack] = (*earlier, *message.outcomes)
        if isinstance(message, Refused):
            self._more[message.pack] = tuple(
                More() if {t.id for t in more.trials} & set(message.trials) else more
                for more in self._more.get(message.pack, ())
            )

    def committed(self, pack: str) -> tuple[Outcome, ...]:
        return self._committed.get(pack, ())

    def drain(self) -> list[Message]:
        messages, self._messages = self._messages, []
        for message in messages:
            if isinstance(message, Over):  # a long sweep has many
                self._forget(message.pack)
        return messages

    def _forget(self, pack: str) -> None:
        """Keep of a pack that is over what a worker needs that dies only now, and is replaced."""
        self._begun.discard(pack)
        for each in (self._hits, self._more):
            each.pop(pack, None)
        if pack in self._jobs:
            job = self._jobs[pack]
            nothing = replace(job.pack, trials=(), known=())
            self._jobs[pack] = replace(job, pack=nothing, wanted=frozenset(), before={})

    def begun(self) -> set[str]:
        """Packs whose workers have asked for their jobs."""
        return self._begun

    def share(self, hits: Mapping[str, tuple[int, ...]]) -> None:
        """The hits of each pack that has new ones."""
        self._hits.update(hits)

    def give(self, pack: str, more: More) -> None:
        self._more[pack] = (*self._more.get(pack, ()), more)

    def control(self, pack: str) -> Control:
        if pack in self._workers:
            self._heard[pack] = time.monotonic()
        hits, more = self._hits.get(pack, ()), self._more.get(pack, ())
        return Control(stop=self._stop, hits=hits, more=more)

    def progress(self, pack: str) -> tuple[int, int]:
        """Trials that a pack's workers have committed, and the step at which the last one began."""
        return len(self.committed(pack)), self._began.get(pack, 0)

    def over(self, pack: str) -> bool:
        """Whether a worker has sent the pack's end."""
        return pack in self._over

    def report(self, pack: str, attempt: str, report: Report) -> None:
        """A rank has raised. ``attempt``: of its group."""
        self._reports.setdefault((pack, attempt), []).append(report)

    def reports(self, pack: str, attempt: str) -> tuple[list[Report], bool]:
        """What the ranks have reported, and whether the driver asks to stop."""
        return self._reports.get((pack, attempt), []), self._stop

    def settle(self, pack: str, attempt: str, verdict: Verdict) -> None:
        """What the ranks' reports mean, for rank 0."""
        self._verdicts[pack, attempt] = verdict

    def verdict(self, pack: str, attempt: str) -> Verdict | None:
        return self._verdicts.get((pack, attempt))

    def stop(self) -> None:
        self._stop = True

    def arrive(self, pack: str, worker: Any) -> None:
        """A worker begins with a pack; ``worker`` is its actor."""
        self._workers[pack] = worker
        self._heard.pop(pack, None)

    def leave(self, pack: str) -> None:
        """A worker has ended with its pack."""
        self._workers.pop(pack, None)

    def silent(self, seconds: float) -> list[tuple[str, Any]]:
        """Packs whose workers had begun to ask and have not for so long, and their actors: their
        processes are in code that lets no other thread run. Each is named once."""
        since = time.monotonic() - seconds
        packs = [pack for pack in self._workers if self._heard.get(pack, since) < since]
        return [(pack, self._workers.pop(pack)) for pack in packs]


_LOST: Mapping[str, Any] = {
    "extend": False,
    "renew": False,
    "release": None,
    "commit": None,
    "save": None,
    "delete": None,
}
"""What the methods that need a claim answer without it."""


class Writer:
    """An actor beside the driver that writes for workers on machines without the results folder."""

    def __init__(self, location: Location, processes: Sequence[Mapping[str, Any]]) -> None:
        self._ledger = Ledger(location, processes)

        self._worker_of: dict[str, str] = {}

    def call(self, worker: str, method: str, *arguments: Any, **more: Any) -> Any:
        """Call a method of the ledger. A worker that was declared dead, and whose pack another one
        has by now, has lost its claim."""
        if method == "take":
            taken = self._ledger.take(*arguments, **more)
            if taken:
                self._worker_of[arguments[0]] = worker
            return taken
        if method == "abandon":
            self._worker_of.pop(arguments[0], None)
        if method in _LOST and self._worker_of.get(arguments[0]) != worker:
            return _LOST[method]
        return getattr(self._ledger, method)(*arguments)


def beside_driver(kind: type, *arguments: Any) -> Any:
    """An actor of ``kind`` on the driver's own machine; it takes no CPU slot."""
    here = ray.get_runtime_context().get_node_id()
    strategy = NodeAffinitySchedulingStrategy(here, soft=False)
    actor: Any = ray.remote(kind).options(num_cpus=0, scheduling_strategy=strategy)
    return actor.remote(*arguments)


class RemoteLedger:
    """The ledger of a worker without the results folder: every call goes to the ``Writer``."""

    def __init__(self, writer: Any, place: Mapping[str, str]) -> None:
        self._writer, self._place = writer, place
        self._worker = uuid.uuid4().hex

    def take(self, pack: str, trials: Sequence[str], info: Mapping[str, Any], before: Any) -> bool:
        """The claim names this process and its node, not the ``Writer``."""
        info = {**info, **self._place}
        taken: bool = self._call("take", pack, trials, info, before, holder=identify())
        return taken

    def _call(self, method: str, *arguments: Any, **more: Any) -> Any:
        try:
            return ray.get(self._writer.call.remote(self._worker, method, *arguments, **more))
        except RayTaskError as error:
            raise error.cause from None  # as if it had been raised here

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):  # pickle asks for attributes that do not exist
            raise AttributeError(method)

        return partial(self._call, method)


def channel(mailbox: Any) -> Channel:
    """A worker's connection through the mailbox. If it is lost, so is the driver: stop."""

    def send(message: Message) -> None:
        sent = mailbox.post.remote(message)
        if isinstance(message, Over) or (isinstance(message, Ended) and message.run):
            with suppress(RayError):  # the rows are safe; no driver is left
                ray.get(sent)

    def control(pack: str) -> Control:
        try:
            answer: Control = ray.get(mailbox.control.remote(pack))
        except RayError:
            return Control(stop=True)
        return answer

    return Channel(send=send, control=control)


def summary(outcomes: tuple[Outcome, ...]) -> dict[str, int]:
    """A Tune report of trials that have ended."""
    return {
        "trials": len(outcomes),
        "reached": sum(1 for o in outcomes if o.steps_to_target is not None),
        "infeasible": sum(1 for o in outcomes if o.status == "INFEASIBLE"),
        "dominated": sum(1 for o in outcomes if o.stop_reason == "dominated"),
    }
