"""``python -m benchmarks [PART …]``: measure, and renew those sections of docs/benchmarks.md.

``python -m benchmarks merge gpu.json``: put in what ``python -m benchmarks.gpu`` measured, perhaps
on another machine.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks import (
    cluster,
    demo,
    driver,
    engines,
    evaluations,
    gpu,
    groups,
    growth,
    images,
    kernels,
    peers,
    profile,
    published,
    reader,
    report,
    scale,
    search,
    selection,
    sweeps,
    techniques,
    threads,
    transformer,
    tuners,
)
from benchmarks.page import PAGE, table, write

PARTS: dict[str, Callable[[], list[dict[str, object]]]] = {
    "demo": demo.rows,
    "profile": profile.rows,
    "engines": engines.rows,
    "selection": selection.rows,
    "images": images.rows,
    "evaluations": evaluations.rows,
    "transformer": transformer.rows,
    "techniques": techniques.rows,
    "kernels": kernels.rows,
    "threads": threads.rows,
    "sweeps": sweeps.rows,
    "peers": peers.rows,
    "search": search.rows,
    "tuners": tuners.rows,
    "groups": groups.rows,
    "growth": growth.rows,
    "scale": scale.rows,
    "driver": driver.rows,
    "cluster": cluster.rows,
    "published": published.rows,
    "reader": reader.rows,
    "report": report.rows,
    "gpu": gpu.rows,
}


PICTURES = {
    "growth": "![Processor seconds against the trials that a sweep trains, and against the "
    "measurements that an analysis reads, both in logs](img/benchmarks-growth.png)"
}
"""The picture of a part."""


def main(names: list[str]) -> None:
    """Measure the parts ``names``, all of them if none is named; or merge the file behind
    ``merge``."""
    if names[:1] == ["merge"] and len(names) == 2:
        gpu.merge(Path(names[1]), list(PARTS))
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
        text = table(PARTS[name]())
        print(f"\n{name}\n{text}", flush=True)
        parts = [machine, text, PICTURES.get(name, "")]
        write(list(PARTS), {name: "\n\n".join(each.rstrip() for each in parts if each)})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
