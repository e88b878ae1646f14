"""Ends the processes that a killed sweep left running on this machine.

Its claims list them; that a process is a dead sweep's is read from the process itself
(``results.run_state.processes.end``).
"""

from __future__ import annotations

from collections.abc import Callable

from results.counts import count
from results.run_state import processes
from results.run_state.claims import Claims
from results.store import Store

_GRACE_SECONDS = 0.3
"""Seconds from SIGTERM to SIGKILL. The driver is dead, so their work will not be used."""


def end_orphans(store: Store, note: Callable[[str], None] = lambda _: None) -> int:
    """End the workers and the Ray of drivers that have died; then their claims are free.

    A driver of another machine is not judged, and what a driver did not start itself, as the
    workers of a Ray that was there before, is left alone: such claims fall silent and are free
    after two minutes. Returns how many processes were ended.

    ``note`` takes a sentence about trials that such a driver trained in its own process: their code
    may have ended it.
    """
    claims = Claims(store.location)
    ended = 0
    for claim in claims.all():
        drivers = [process for process in claim["processes"] if process.get("role") == "driver"]
        if not drivers or processes.alive(drivers[0]) is not False:
            continue
        if claim["holder"].get("pid") == drivers[0].get("pid"):
            trials = count(len(claim["trials"]), "trial")
            note(
                f"an earlier run did not say here how it ended while it trained {trials} in its "
                f"own process (study {claim['info'].get('study')}): it was killed, this folder was "
                "away, or their code ended it. With --address auto such code ends a worker alone, "
                "and its trial is found."
            )
        for process in (claim["holder"], *claim["processes"]):
            if processes.alive(process):
                ended += processes.end(process, starter=drivers[0], grace=_GRACE_SECONDS)
    claims.clear()
    return ended
