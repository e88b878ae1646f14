"""What a killed sweep left running on this machine is ended, by the process ids in its claims."""

from __future__ import annotations

from results import processes
from results.claims import Claims
from results.store import Store

_GRACE_SECONDS = 0.3
"""From SIGTERM to SIGKILL. The driver is dead: whatever they still do will not be used."""


def end_leftovers(store: Store) -> int:
    """End the workers, and the Ray, of drivers that are gone; their claims are free then.

    A driver of another machine, or of a Ray that it did not start, is not judged: its claims fall
    silent and are free after two minutes. Returns how many processes were ended.
    """
    claims = Claims(store.location)
    ended = 0
    for claim in claims.all():
        others = claim["processes"]
        drivers = [process for process in others if process.get("role") == "driver"]
        if not drivers or processes.alive(drivers[0]) is not False:
            continue
        for process in (claim["holder"], *others[1:]):
            if processes.alive(process):
                ended += processes.end(process, grace=_GRACE_SECONDS)
    claims.clear()
    return ended
