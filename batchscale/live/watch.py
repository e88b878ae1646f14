"""Follows a results folder: one thread that looks every few seconds whether its files have changed,
and computes again what depends on them. It writes nothing.

Trials that come in change everything; claims that are renewed change the status alone. What is
computed takes a quarter of a processor at most: the sweep beside it comes first.
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
from batchscale.live.progress import nothing, progress
from batchscale.live.shown import Payload, Shown
from batchscale.output.errors import CommandError, one_line
from experiments.records.status import status
from results.errors import ResultsError
from results.reader import Results
from results.run_state.claims import FOLDER as CLAIMS
from results.schema import SCHEMAS
from results.storage.dataset import retrying
from results.storage.location import Location

NAME = "batchscale-watch"
"""Of the thread."""
EVERY = 2.0
"""Seconds between two looks at the folder."""
_EVERY_REMOTE = 15.0
"""At an object store, where a listing costs."""
_RENEWED = 10.0
"""Seconds after which the status is asked again where there are claims: they fall free by time."""
_AGAIN = 30.0
"""Seconds after which what failed is tried again, though no file has changed."""
_SHARE = 0.25
_NEVER = float("inf")

Files = tuple[tuple[str, int, float], ...]


class Watch:
    """Keeps ``shown`` up to date, in a thread of its own from ``start`` to ``stop``.

    ``make`` computes the payload from results that were just opened; None where they hold too
    little. ``say`` is told each new error in a line.
    """

    def __init__(
        self,
        source: str | Path | Location,
        make: Callable[[Results], Payload | None],
        shown: Shown,
        *,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._location = Location.of(source)
        self.source = self._location.root
        self._make, self._shown, self._clock, self._spent = make, shown, clock, spent
        self._say = say
        self._every = EVERY if self._location.local else _EVERY_REMOTE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._found: Results | None = None
        self._status = shown.status
        self._seen: Files = ()
        """The dataset that the status is of."""
        self._claims: Files = ()
        self._drawn: Files = ()
        """The dataset that the payload is of."""
        self._due = {"status": -_NEVER, "payload": _NEVER}
        """When each is computed again though nothing has changed."""
        self._rest = -_NEVER
        """The payload is not computed before."""
        self._errors: dict[str, str] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self, patience: float = 2.0) -> bool:
        """Look no more; whether the thread has ended in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def look(self) -> None:
        """Compute again what has changed, if it is time to. No error leaves it."""
        now = self._clock()
        data: Files | None = None
        claims: Files = ()
        with self._part("listing"):
            claims = self._files(CLAIMS, suffix=".json")
            data = self._files(*SCHEMAS, suffix=".parquet")
        if data is None:
            self._tell()
            return
        same = (data, claims) == (self._seen, self._claims)
        if not (data and same) or now >= self._due["status"]:
            changed, self._seen, self._claims = data != self._seen, data, claims
            with self._part("status"):
                self._renew(changed)
            self._tell()
        changed = data != self._drawn or now >= self._due["payload"]
        if data and changed and now >= self._rest:
            began, self._drawn = self._spent(), data
            self._tell(computing=True)
            with self._part("payload"):
                self._compute()
            spent = self._spent() - began
            self._rest = self._clock() + max(self._every, spent * (1 / _SHARE - 1))
            self._tell()

    def _renew(self, changed: bool) -> None:
        """The status; results are opened again if their files have changed."""
        self._due["status"] = self._clock() + _RENEWED if self._claims else _NEVER
        if not self._seen:
            self._found = None
            self._status = self._empty()
            return
        if changed:
            self._found = None
        renewed = {Path(name).stem: modified for name, _, modified in self._claims}
        told, studies = retrying(self._ask)
        self._status = progress(self.source, told, studies, renewed)

    def _ask(self) -> Any:
        found, self._found = self._found, None
        found = found or results.open(self._location)
        told = status(found)
        self._found = found
        return told, found.studies

    def _compute(self) -> None:
        """The payload."""
        self._due["payload"] = _NEVER

        def make() -> Payload | None:
            found, self._found = self._found, None
            payload = self._make(found or results.open(self._location))
            self._found = found
            return payload

        payload = retrying(make)
        if payload is not None:
            self._shown.show(payload)

    def _empty(self) -> dict[str, Any]:
        """The status where there is no file of any table.

        Raises:
            ResultsError: there were some, or the folder is none of ours.
        """
        if self._drawn:
            raise ResultsError(f"{self.source} holds nothing any more; shown is what was read last")
        if not self._location.empty():
            self._location.require()
        return nothing(self.source, f"Waiting for a sweep: there is nothing in {self.source} yet.")

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Whatever goes wrong in it is shown, and tried again later."""
        try:
            yield
        except FileNotFoundError:
            self._due[name] = self._clock()  # files keep moving: at the next look
        except Exception as error:
            clear = isinstance(error, ResultsError | CommandError)
            hint = getattr(error, "hint", None)
            line = (str(error) if clear else one_line(error)) + (f" ({hint})" if hint else "")
            line = self._location.masked(line)
            if self._say is not None and line not in self._errors.values():
                self._say(line)
            self._errors[name] = line
            self._due[name] = self._clock() + _AGAIN
            self._found = None
        else:
            self._errors.pop(name, None)

    def _tell(self, *, computing: bool = False) -> None:
        error = next(iter(self._errors.values()), None)
        told = {**self._status, "error": error, "computing": computing}
        if told != {**self._shown.status, "time": told["time"]}:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._shown.tell({**told, "time": now})

    def _files(self, *folders: str, suffix: str) -> Files:
        return tuple(
            (file.name, file.size, file.modified)
            for folder in folders
            for file in self._location.files(folder, suffix)
        )

    def _run(self) -> None:
        # Of Linux: a priority is a thread's own there. Elsewhere all have the same.
        if sys.platform == "linux":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(self._every)
