"""Where a stack of models is faster than one model at a time: what ``LIMITS`` of
``experiments.engines.selection`` rests on.

Each case is timed in both engines in turn, packs of 16 models on one thread; the ratio is that of
the least of five timings, since other work of the machine can only lengthen a timing.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from benchmarks.engines import trial
from experiments.engines.base import Engine
from experiments.engines.module import ModuleEngine
from experiments.engines.selection import LIMITS, Arithmetic, choose
from experiments.engines.stacked import StackedEngine
from experiments.plan import Study, WorkloadRef
from experiments.training.study_context import StudyContext
from results.targets.target import Target
from workloads.data import present

MODELS = 16
SECONDS = 0.1
CASES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("digits-mlp", {}, (1, 8, 64, 256, 512, 1024, 1297)),
    ("digits-fc", {"widths": [256]}, (8, 64, 256, 1024)),
    ("digits-fc", {"widths": [1024]}, (1, 8, 32, 128, 512)),
    ("digits-fc", {"widths": [64, 64, 64]}, (8, 64, 256, 1024)),
    ("digits-fc", {"widths": [1500]}, (1, 8, 32)),
    ("mnist-fc", {"widths": [64]}, (8, 64, 256)),
    ("mnist-fc", {}, (1, 8, 64)),
    ("mnist-simple-cnn", {}, (1, 8, 64)),
    ("cifar10-resnet8", {}, (1, 8, 64)),
]
DATA = {"mnist-fc": "mnist", "mnist-simple-cnn": "mnist", "cifar10-resnet8": "cifar10"}


def study(workload: str, fields: dict[str, Any], batch_size: int) -> Study:
    """A study that trains ``workload`` with SGD."""
    return Study(
        id="benchmark",
        experiment="benchmark",
        workload=WorkloadRef(spec=workload, fields=fields),
        optimizer="sgd",
        schedule="constant",
        batch_size=batch_size,
        trials=MODELS,
        budget_steps=10**9,
        targets=(Target.parse("validation_error < 0.001"),),
    )


def seconds(engine: Engine, steps: int) -> float:
    """Seconds of one step of one model."""
    began = time.perf_counter()
    engine.advance(steps)
    return (time.perf_counter() - began) / steps / len(engine.trials)


def ratio(context: StudyContext) -> float:
    """The module engine's seconds over the stacked one's."""
    trials = [trial(i) for i in range(MODELS)]
    engines: tuple[Engine, Engine] = (
        ModuleEngine(context, trials[:2]),
        StackedEngine(context, trials),
    )
    counts = []
    for engine in engines:
        engine.advance(2)
        each = seconds(engine, 1) * len(engine.trials)
        counts.append(max(1, int(SECONDS / each)))
    timings: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        for engine, count, taken in zip(engines, counts, timings, strict=True):
            taken.append(seconds(engine, count))
    return min(timings[0]) / min(timings[1])


def rows() -> list[dict[str, object]]:
    """One row a case, for the table in docs/."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for workload, fields, sizes in CASES:
        if workload in DATA and not present(DATA[workload]):
            continue
        for size in sizes:
            context = StudyContext.load(study(workload, fields, size))
            model = context.model(trial(0))
            arithmetic = Arithmetic.of(context, model)
            work = size * arithmetic.multiply_adds / arithmetic.products
            parameters = sum(p.numel() for p in model.parameters())
            shape = ", ".join(f"{name} {value}" for name, value in fields.items())
            rows.append(
                {
                    "what": f"{workload}{f' ({shape})' if shape else ''}, batch {size}: "
                    f"2^{math.log2(work):.1f} multiply-adds a product, {parameters:,} parameters",
                    "measured": f"the stack is {ratio(context):.2f}× as fast",
                    "wanted": f"chosen: {choose(context, [trial(i) for i in range(MODELS)])}",
                }
            )
            print(rows[-1], flush=True)
    limits = LIMITS["cpu"]
    rows.append(
        {
            "what": "limits of the stacked engine on a CPU",
            "measured": f"2^{math.log2(limits.multiply_adds):.0f} multiply-adds a product, "
            f"{limits.parameters:,} parameters",
            "wanted": "",
        }
    )
    return rows


if __name__ == "__main__":
    rows()
