"""``python -m validation [PART …]``: make parts, and renew those sections of docs/truth.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from validation import (
    budgets,
    crossovers,
    goldens,
    overlay,
    quadratic,
    search_limits,
    searches,
    shapes,
    techniques,
)
from validation.page import PAGE, write

PARTS: dict[str, Callable[[int | None], str]] = {
    "shapes": shapes.section,
    "searches": searches.section,
    "limits": search_limits.section,
    "crossovers": crossovers.section,
    "techniques": techniques.section,
    "budgets": budgets.section,
    "exact": quadratic.section,
    "goldens": goldens.section,
    "overlay": overlay.section,
}
"""Functions that make a section's Markdown, on a number of processes (None: one per core)."""


def main(arguments: list[str]) -> None:
    """Run the parts that are named, all of them if none is."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--processes", type=int, help="worker processes (default: one a core)")
    parser.add_argument(
        "--tables", type=int, default=techniques.TABLES, help="tables of a block of techniques"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    if given.processes is not None and given.processes < 1:
        parser.error(f"--processes {given.processes} is below 1")
    if given.tables < 1:
        parser.error(f"--tables {given.tables} is below 1")
    parts: dict[str, Callable[[int | None], str]] = {
        **PARTS,
        "techniques": partial(techniques.section, tables=given.tables),
    }
    for name in given.parts or PARTS:
        write(list(PARTS), {name: parts[name](given.processes)})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
