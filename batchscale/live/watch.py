"""Follows a results folder: one thread checks every few seconds whether its files have changed, and
updates what depends on them. It writes nothing.

New trials change everything; renewed claims change the status alone. The computation takes a
quarter of a processor at most: the sweep on the same machine comes first.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import results
from batchscale.live.content import Content, Payload
from batchscale.live.metrics import Speed
from batchscale.live.status import nothing, progress
from batchscale.output.errors import CommandError, summary_line
from experiments.records.status import status
from results.errors import ResultsError
from results.reader import Results
from results.run_state.claims import FOLDER as CLAIMS
from results.schema import SCHEMAS
from results.storage.dataset import retrying
from results.storage.location import Location

NAME = "batchscale-watch"
"""The thread's."""
EVERY = 2.0
"""Seconds between two checks of the folder."""
_EVERY_REMOTE = 15.0
"""The same for an object store, where listing is expensive."""
_RENEWED = 10.0
"""Seconds after which the status is computed again where there are claims: they expire."""
_AGAIN = 30.0
"""Seconds after which a failed update is tried again, though no file has changed."""
_SHARE = 0.25
_NEVER = float("inf")

Files = tuple[tuple[str, int, float], ...]


class Watch:
    """Keeps ``content`` up to date, in a separate thread from ``start`` to ``stop``.

    Args:
        make: computes the payload from results that were just opened; None where they hold too
            little.
        say: called with a line for each new error.
    """

    def __init__(
        self,
        source: str | Path | Location,
        make: Callable[[Results], Payload | None],
        content: Content,
        *,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._location = Location.of(source)
        self.source = self._location.root
        self._make, self._content, self._clock, self._spent = make, content, clock, spent
        self._say = say
        self._every = EVERY if self._location.local else _EVERY_REMOTE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._results: Results | None = None
        self._status = content.status
        self._seen: Files = ()
        """The files that the status was computed from."""
        self._claims: Files = ()
        self._drawn: Files = ()
        """The files that the payload was computed from."""
        self._due = {"status": -_NEVER, "payload": _NEVER}
        """Times at which each is computed again though nothing has changed."""
        self._rest = -_NEVER
        """Earliest time of the next payload."""
        self._speed = Speed()
        self._errors: dict[str, str] = {}

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self, patience: float = 2.0) -> bool:
        """Stop watching; whether the thread has ended in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def update(self) -> None:
        """Compute again what has changed, if it is due. It raises no error."""
        now = self._clock()
        data: Files | None = None
        claims: Files = ()
        with self._part("listing"):
            claims = self._files(CLAIMS, suffix=".json")
            data = self._files(*SCHEMAS, suffix=".parquet")
        if data is None:
            self._publish()
            return
        same = (data, claims) == (self._seen, self._claims)
        if not (data and same) or now >= self._due["status"]:
            changed, self._seen, self._claims = data != self._seen, data, claims
            with self._part("status"):
                self._renew(changed)
            self._publish()
        changed = data != self._drawn or now >= self._due["payload"]
        if data and changed and now >= self._rest:
            began, self._drawn = self._spent(), data
            self._publish(computing=True)
            with self._part("payload"):
                self._compute()
            spent = self._spent() - began
            self._rest = self._clock() + max(self._every, spent * (1 / _SHARE - 1))
            self._publish()

    def _renew(self, changed: bool) -> None:
        """The status; results are opened again if their files have changed."""
        self._due["status"] = self._clock() + _RENEWED if self._claims else _NEVER
        if not self._seen:
            self._results = None
            self._status = self._empty()
            return
        if changed:
            self._results = None
        renewed = {Path(name).stem: modified for name, _, modified in self._claims}
        state, studies = retrying(self._read)
        speed = self._speed.take(state.packs, renewed)
        self._status = progress(self.source, state, studies, renewed)
        self._status["steps_per_second"] = speed

    def _read(self) -> Any:
        opened, self._results = self._results, None
        opened = opened or results.open(self._location)
        state = status(opened)
        self._results = opened
        return state, opened.studies

    def _compute(self) -> None:
        """The payload."""
        self._due["payload"] = _NEVER

        def make() -> Payload | None:
            opened, self._results = self._results, None
            payload = self._make(opened or results.open(self._location))
            self._results = opened
            return payload

        payload = retrying(make)
        if payload is not None:
            self._content.set_payload(payload)

    def _empty(self) -> dict[str, Any]:
        """The status where there is no file of any table.

        Raises:
            ResultsError: there were some, or it is not a results folder.
        """
        if self._drawn:
            raise ResultsError(f"{self.source} is empty now; the page shows what was read last")
        if not self._location.empty():
            self._location.require()
        return nothing(self.source, f"Waiting for a sweep: there is nothing in {self.source} yet.")

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """An error in it is displayed on the page, and the part is tried again later."""
        try:
            yield
        except FileNotFoundError:
            self._due[name] = self._clock()  # files are being merged: at the next update
        except Exception as error:
            clear = isinstance(error, ResultsError | CommandError)
            hint = getattr(error, "hint", None)
            line = (str(error) if clear else summary_line(error)) + (f" ({hint})" if hint else "")
            line = self._location.masked(line)
            if self._say is not None and line not in self._errors.values():
                self._say(line)
            self._errors[name] = line
            self._due[name] = self._clock() + _AGAIN
            self._results = None
        else:
            self._errors.pop(name, None)

    def _publish(self, *, computing: bool = False) -> None:
        error = next(iter(self._errors.values()), None)
        status = {**self._status, "error": error, "computing": computing}
        if status != {**self._content.status, "time": status["time"]}:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._content.set_status({**status, "time": now})

    def _files(self, *folders: str, suffix: str) -> Files:
        return tuple(
            (file.name, file.size, file.modified)
            for folder in folders
            for file in self._location.files(folder, suffix)
        )

    def _run(self) -> None:
        # Only Linux has a priority for each thread.
        if sys.platform == "linux":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not self._stopping.is_set():
            self.update()
            self._stopping.wait(self._every)
