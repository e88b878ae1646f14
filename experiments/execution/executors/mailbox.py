"""Where the driver and its Ray workers meet: jobs go out, words come back, requests go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from experiments.execution.ledger import FolderLedger, Progress, Rows
from experiments.plan import Outcome
from experiments.scheduling.failures import Failure
from experiments.scheduling.jobs import (
    Channel,
    Control,
    Ended,
    Job,
    Message,
    More,
    PackEnd,
    Refused,
)
from results.storage.location import Location

_GONE = Control(stop=True)


class Mailbox:
    """An actor beside the driver; every method is quick."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._words: list[Message] = []
        self._known: dict[str, tuple[int, ...]] = {}
        self._more: dict[str, tuple[More, ...]] = {}
        self._committed: dict[str, tuple[Outcome, ...]] = {}
        self._blamed: dict[str, Failure] = {}
        self._stop = False

    def put(self, job: Job) -> None:
        self._jobs[job.pack.id] = job
        self._blamed.pop(job.pack.id, None)
        self._known.pop(job.pack.id, None)
        self._more.pop(job.pack.id, None)
        self._committed.pop(job.pack.id, None)

    def get(self, pack: str) -> Job:
        """The job, for a worker that begins; of one that died, with what it had been given."""
        for more in self._more.pop(pack, ()):
            self._jobs[pack] = self._jobs[pack].joined_by(more)
        return self._jobs[pack]

    def tell(self, word: Message) -> None:
        self._words.append(word)
        if isinstance(word, Ended) and word.committed:
            self._committed[word.pack] = (*self.committed(word.pack), *word.outcomes)
        if isinstance(word, Refused):
            self._more[word.pack] = tuple(
                More() if {t.id for t in more.trials} & set(word.trials) else more
                for more in self._more.get(word.pack, ())
            )

    def committed(self, pack: str) -> tuple[Outcome, ...]:
        return self._committed.get(pack, ())

    def drain(self) -> list[Message]:
        words, self._words = self._words, []
        return words

    def share(self, pack: str, known: tuple[int, ...]) -> None:
        self._known[pack] = known

    def give(self, pack: str, more: More) -> None:
        self._more[pack] = (*self._more.get(pack, ()), more)

    def asks(self, pack: str) -> Control:
        known, more = self._known.get(pack, ()), self._more.get(pack, ())
        return Control(stop=self._stop, known=known, more=more, failure=self._blamed.get(pack))

    def blame(self, pack: str, failure: Failure) -> None:
        """A rank other than 0 has raised: what the others raise then is a consequence."""
        self._blamed.setdefault(pack, failure)

    def stop(self) -> None:
        self._stop = True


class Writer:
    """An actor beside the driver that writes for workers on machines without the results folder."""

    def __init__(self, location: Location, processes: Sequence[Mapping[str, Any]]) -> None:
        self._ledger = FolderLedger(location, processes)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._ledger, method)(*arguments)


def beside_driver(kind: type, *arguments: Any) -> Any:
    """An actor of ``kind`` on the driver's own machine; it takes no CPU slot."""
    here = ray.get_runtime_context().get_node_id()
    strategy = NodeAffinitySchedulingStrategy(here, soft=False)
    actor: Any = ray.remote(kind).options(num_cpus=0, scheduling_strategy=strategy)
    return actor.remote(*arguments)


class RemoteLedger:
    """The ledger of a worker without the results folder: every call goes to the ``Writer``."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return ray.get(self._writer.call.remote(method, *arguments))
        except RayTaskError as error:
            raise error.cause from None  # as if it had been raised here

    def take(
        self,
        pack: str,
        trials: Sequence[str],
        info: Mapping[str, Any],
        before: Mapping[str, str],
    ) -> bool:
        return bool(self._call("take", pack, trials, info, before))

    def extend(self, pack: str, trials: Sequence[str], before: Mapping[str, str]) -> bool:
        return bool(self._call("extend", pack, trials, before))

    def renew(self, pack: str, progress: Progress) -> bool:
        return bool(self._call("renew", pack, progress))

    def commit(self, pack: str, experiment: str, measurements: Rows, trials: Rows) -> str | None:
        run: str | None = self._call("commit", pack, experiment, measurements, trials)
        return run

    def save(self, pack: str, snapshot: bytes) -> None:
        self._call("save", pack, snapshot)

    def load(self, pack: str) -> bytes | None:
        data: bytes | None = self._call("load", pack)
        return data

    def forget(self, pack: str) -> None:
        self._call("forget", pack)

    def keep_paused(self, study: str, held: Mapping[str, bytes]) -> None:
        self._call("keep_paused", study, held)

    def paused(self, study: str, trials: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = self._call("paused", study, trials)
        return found

    def drop(self, study: str, trials: Sequence[str]) -> None:
        self._call("drop", study, trials)

    def release(self, pack: str) -> None:
        self._call("release", pack)


def wire(board: Any) -> Channel:
    """A worker's line over the board. A board that is gone says that the driver is: stop."""

    def tell(word: Message) -> None:
        sent = board.tell.remote(word)
        if isinstance(word, PackEnd) or (isinstance(word, Ended) and word.committed):
            try:
                ray.get(sent)
            except RayError:
                return  # the rows are safe; there is nobody left to tell

    def asks(pack: str) -> Control:
        try:
            answer: Control = ray.get(board.asks.remote(pack))
        except RayError:
            return _GONE
        return answer

    return Channel(tell=tell, asks=asks)
