"""``python -m benchmarks [PART …]``: measure everything and write the table docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks import demo, engines, scale, sweeps

PARTS = {"demo": demo.rows, "engines": engines.rows, "sweeps": sweeps.rows, "scale": scale.rows}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Made by `make bench`, in one run on one machine; every ratio is of two things timed in turn in that
run, its quartiles in brackets. Machines are noisy: read ratios before seconds.

"""


def table(rows: list[dict[str, object]]) -> str:
    """A Markdown table."""
    lines = ["| what | measured | wanted |", "|---|---|---|"]
    lines += [f"| {row['what']} | {row['measured']} | {row['wanted']} |" for row in rows]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Measure the parts ``names``, all of them if none is named, and write the page if all."""
    unknown = set(names) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {unknown.pop()!r}; known: {', '.join(PARTS)}")
    rows = []
    for name in names or PARTS:
        part = PARTS[name]()
        print(table(part), flush=True)
        rows += part
    cuda = torch.cuda.is_available()
    on_gpu = ("twin tests of both engines on CUDA", "cifar10-resnet8 to its target on CUDA")
    missing = {"measured": "not measured: no GPU", "wanted": "passes"}
    rows += [{"what": what, **missing} for what in on_gpu if not cuda]
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), "
        f"{'a CUDA GPU' if cuda else 'no GPU'}, Python {platform.python_version()}, "
        f"torch {torch.__version__}.\n\n"
    )
    if not names:
        PAGE.write_text(HEAD + machine + table(rows))
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
