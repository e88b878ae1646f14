"""The report of a results folder, computed again as it changes, and served until interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from analysis.figure_data import FigureData, Query
from batchscale.live.content import Content, Payload
from batchscale.live.server import PORT, STATE, Server
from batchscale.live.status import nothing
from batchscale.live.watch import Watch
from batchscale.output.errors import CommandError
from results.reader import Results
from results.storage.location import PACKAGED, Location
from results.targets.target import Target


class LiveReport:
    """A page of a query's only source; it answers requests inside ``with LiveReport(…) as it``.

    Args:
        say: called with a line where something is wrong with the results or the address.

    Raises:
        CommandError: no such port or host.
        ResultsError: the source is a file, or a folder of something else; an invalid target.
    """

    def __init__(
        self,
        query: Query,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if port is not None and not 0 <= port <= 65_535:
            raise CommandError(
                f"--port {port} is not a port", hint="a number up to 65535; 0 is any"
            )
        if query.target is not None:
            Target.parse(query.target)
        (source,) = query.sources
        location = Location.of(PACKAGED.get(str(source)) or str(source))
        if not location.empty():
            location.require()

        def payload(results: Results) -> Payload | None:
            from analysis.report import payload

            if not len(results.trial_rows):
                return None
            return payload(FigureData(replace(query, sources=[results])))

        content = Content(_page, nothing(location.root, f"Reading {location.root} …"))
        self.server = Server(content, host, port)
        self.watch = Watch(location, payload, content, say=say)
        if say is not None and port is None and self.server.port != PORT:
            say(f"port {PORT} is in use: serving at port {self.server.port}")
        if say is not None and not self.server.loopback:
            say(f"warning: everyone who reaches {host} over a network can read this page")

    def __enter__(self) -> LiveReport:
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
