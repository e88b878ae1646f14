"""The command line: one file for each group of commands, and `app`, which registers them."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The program ``batchscale``."""
    import os
    import sys
    import threading

    from batchscale.cli.app import run

    status = run(list(sys.argv[1:] if arguments is None else arguments))
    if any(thread.name == "batchscale-query" for thread in threading.enumerate()):
        sys.stdout.flush()  # a query that does not stop (results.query_limits)
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
