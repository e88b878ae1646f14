"""Between the driver and its Ray workers: assignments go out, messages come back."""

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
from experiments.plan import Outcome
from experiments.scheduling.messages import Assignment, Begun, Channel, Ended, Message, Over, Taken
from results.run_state.processes import identify
from results.storage.location import Location


class Mailbox:
    """An actor beside the driver; every method is quick."""

    def __init__(self) -> None:
        self._assignments: dict[str, Assignment] = {}
        self._messages: list[Message] = []
        self._committed: dict[str, tuple[Outcome, ...]] = {}
        self._began: dict[str, int] = {}
        self._begun: set[str] = set()
        self._stop = False
        self._workers: dict[str, Any] = {}
        self._heard: dict[str, float] = {}

    def put(self, assignment: Assignment) -> None:
        """A pack that is handed out."""
        pack = assignment.pack.id
        self._assignments[pack] = assignment
        for each in (self._began, self._committed):
            each.pop(pack, None)
        self._begun.discard(pack)

    def add(self, news: Sequence[Assignment]) -> None:
        """What packs that are out have been assigned since."""
        for each in news:
            pack = each.pack.id
            if pack in self._assignments:
                self._assignments[pack] = self._assignments[pack].joined_by(each)

    def ask(self, pack: str, heard: int = 0) -> Assignment:
        """What a worker is to train: all of it at its start, and later what has come since it had
        ``heard`` of so many trials."""
        assignment = self._assignments[pack].after(heard)
        if pack in self._workers and heard:
            self._heard[pack] = time.monotonic()
        if not heard:  # a successor does not train what a worker that died has recorded
            self._begun.add(pack)
            assignment = assignment.without(o.trial for o in self.committed(pack))
        return replace(assignment, stop=self._stop)

    def post(self, message: Message) -> None:
        self._messages.append(message)
        if isinstance(message, Begun):
            self._began[message.pack] = message.step
        if isinstance(message, Ended) and message.run:
            earlier = self.committed(message.pack)
            self._committed[message.pack] = (*earlier, *message.outcomes)
        if isinstance(message, Taken):
            assignment = self._assignments[message.pack]
            self._assignments[message.pack] = assignment.without(message.trials)

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
        if pack in self._assignments:
            nothing = self._assignments[pack].without(self._assignments[pack].wanted)
            pack_alone = replace(nothing.pack, trials=(), known=())
            self._assignments[pack] = replace(nothing, pack=pack_alone, before={}, hits=())

    def begun(self) -> set[str]:
        """Packs whose workers have begun to ask."""
        return self._begun

    def progress(self, pack: str) -> tuple[int, int]:
        """Trials that a pack's workers have committed, and the step at which the last one began."""
        return len(self.committed(pack)), self._began.get(pack, 0)

    def stopping(self) -> bool:
        """Whether the driver asks to stop."""
        return self._stop

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

    def __init__(self, writer: Any, place: Mapping[str, str], programs: str) -> None:
        self._writer, self._place, self.programs = writer, place, programs
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

    def ask(before: Assignment) -> Assignment:
        try:
            news = ray.get(mailbox.ask.remote(before.pack.id, len(before.pack.trials)))
        except RayError:
            return replace(before, stop=True)
        return before.joined_by(news)

    return Channel(send=send, ask=ask)


def summary(outcomes: tuple[Outcome, ...]) -> dict[str, int]:
    """A Tune report of trials that have ended."""
    return {
        "trials": len(outcomes),
        "reached": sum(1 for o in outcomes if o.steps_to_target is not None),
        "infeasible": sum(1 for o in outcomes if o.status == "INFEASIBLE"),
        "dominated": sum(1 for o in outcomes if o.stop_reason == "dominated"),
    }
