"""The command line: one file for each group of commands, and `app`, which registers them."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """The program ``batchscale``."""
    import sys

    from batchscale.cli.app import run

    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))
