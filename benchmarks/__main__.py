"""``python -m benchmarks [PART …]``: measure, and renew those tables of findings/benchmarks.md.

``python -m benchmarks merge gpu.json``: put in what ``python -m benchmarks.gpu`` measured, perhaps
on another machine.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import torch

from benchmarks import gpu
from benchmarks.harness import PAGE
from validation.page import renew, table

_CODE = ("demo", "engines", "images", "evaluations", "techniques", "driver")
PARTS = (*_CODE, "published", "report", "gpu")
"""Modules of this package with ``rows()``."""


def main(names: list[str]) -> None:
    """Measure the parts ``names``, all of them if none is named; or merge the file behind
    ``merge``."""
    if names[:1] == ["merge"] and len(names) == 2:
        gpu.merge(Path(names[1]))
        print(f"wrote {PAGE}")
        return
    unknown = set(names) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {unknown.pop()!r}; known: {', '.join(PARTS)}")
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), "
        f"{'a CUDA GPU' if torch.cuda.is_available() else 'no GPU'}, "
        f"Python {platform.python_version()}, torch {torch.__version__}."
    )
    for name in names or PARTS:
        rows = import_module(f"benchmarks.{name}").rows()
        text = table(("what", "measured", "wanted"), rows)
        print(f"\n{name}\n{text}", flush=True)
        renew({name: f"{machine}\n\n{text}"}, PAGE)
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
