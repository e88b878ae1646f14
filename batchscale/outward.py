"""The page of a running sweep: the function behind ``batchscale serve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def serve(
    source: str | Path | None = None,
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
    on_ready: Callable[[str], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Serve the report of a results folder, live over a sweep that runs, until interrupted.

    It reads the dataset and the claims, writes nothing, and may begin before the sweep does.

    Args:
        host: an address of this machine; on loopback, as it is, nobody else can read the page.
        port: one that is free, 0 for any; the first free one from 8080 on unless given.
        on_ready: called with the address of the page.
        say: called with a line where something about the results, or the address, is amiss.

    The others are those of ``regimes``.

    Raises:
        CommandError: no such port or host.
        ResultsError: the source is a file, or a folder of something else.
        KeyboardInterrupt: how it ends.
    """
    from batchscale.api import default_results
    from batchscale.live.serving import Served

    with Served(
        source or default_results(), host=host, port=port, target=target, where=where, by=by,
        baseline=baseline, tolerance=tolerance, estimator=estimator, search=search, say=say,
    ) as served:  # fmt: skip
        if on_ready is not None:
            on_ready(served.server.url)
        served.forever()
