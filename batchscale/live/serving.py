"""A results folder served: what the watch computes, behind the server, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from batchscale.live.progress import nothing
from batchscale.live.server import PORT, STATE, Server
from batchscale.live.shown import Payload, Shown
from batchscale.live.watch import Watch
from batchscale.output.errors import CommandError
from results.reader import Results
from results.storage.location import PACKAGED, Location


class Served:
    """A page of ``source`` that is open to requests while it is entered: ``with Served(…) as it``.

    Raises:
        CommandError: no such port or host.
        ResultsError: ``source`` is a file, or a folder of something else; a target that is none.
    """

    def __init__(
        self,
        source: str | Path | Location,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        target: str | None = None,
        where: str | None = None,
        by: Sequence[str] | None = None,
        baseline: str | None = None,
        tolerance: float = 0.2,
        estimator: str | None = None,
        search: str = "present",
        say: Callable[[str], None] | None = None,
    ) -> None:
        if port is not None and not 0 <= port <= 65_535:
            raise CommandError(f"--port {port} is no port", hint="a number up to 65535; 0 is any")
        if target is not None:
            from results.targets.target import Target

            Target.parse(target)
        location = Location.of(PACKAGED.get(str(source), source))
        if not location.empty():
            location.require()

        def make(found: Results) -> Payload | None:
            from analysis.report import payload
            from batchscale.curves import material
            from batchscale.run import Run

            if not len(found.trial_rows):
                return None
            asked = material(
                [Run(found)], target, where, by, baseline, tolerance, estimator, search
            )
            return payload(asked)

        shown = Shown(_page, nothing(location.root, f"Reading {location.root} …"))
        self.server = Server(shown, host, port)
        self.watch = Watch(location, make, shown, say=say)
        if say is not None and port is None and self.server.port != PORT:
            say(f"port {PORT} is in use: this is {self.server.port}")
        if say is not None and not self.server.loopback:
            say(f"warning: whoever reaches {host} over a network can read this page")

    def __enter__(self) -> Served:
        self.watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.server_close()
        self.watch.stop()

    def forever(self) -> None:
        """Answer requests until interrupted."""
        self.server.serve_forever()


def _page(payload: Payload | None) -> str:
    from analysis.report import page

    return page(payload, live=STATE)
