"""``python -m benchmarks [PART …]``: measure, and renew those sections of docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import torch

from benchmarks import (
    cluster,
    demo,
    driver,
    engines,
    evaluation,
    groups,
    growth,
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
    transformer,
    tuners,
)
from benchmarks.page import PAGE, table, write


def on_a_gpu() -> list[dict[str, object]]:
    """Measurements that need a GPU; they are made by hand on another machine."""
    whats = ("twin tests of both engines on CUDA", "cifar10-resnet8 to its target on CUDA")
    missing = {"measured": "not measured: no GPU", "wanted": "passes"}
    return [{"what": what, **missing} for what in whats if not torch.cuda.is_available()]


PARTS: dict[str, Callable[[], list[dict[str, object]]]] = {
    "demo": demo.rows,
    "profile": profile.rows,
    "engines": engines.rows,
    "selection": selection.rows,
    "transformer": transformer.rows,
    "techniques": techniques.rows,
    "evaluation": evaluation.rows,
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
    "gpu": on_a_gpu,
}


PICTURES = {
    "growth": "![Processor seconds against the trials that a sweep trains, and against the "
    "measurements that an analysis reads, both in logs](img/benchmarks-growth.png)"
}
"""The picture of a part."""


def main(names: list[str]) -> None:
    """Measure the parts ``names``, all of them if none is named."""
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
