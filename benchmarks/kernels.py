"""Speed of training with the kernels that techniques choose, relative to plain training.

One model in the module engine; the plain study and the one with the technique take turns within
one run. Ratios are of processor time; the median of the rounds counts, with its quartiles. On a GPU
they are others: these say what the techniques cost or save on this processor.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.engines import study, trial
from experiments.engines import Engine, make_engine
from experiments.training.study_context import StudyContext

ROUNDS = 9
SECONDS = 0.15
"""Of one turn, about."""

TRANSFORMER: dict[str, Any] = {
    "text": "stdlib", "context": 64, "layers": 2, "width": 64, "heads": 2,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any], int, str, dict[str, Any]]] = {
    "fused, adamw, mnist-fc": ("mnist-fc", {}, 64, "adamw", {"fused": True}),
    "channels_last, cifar10-resnet8": (
        "cifar10-resnet8", {}, 32, "sgd", {"channels_last": True},
    ),
    "attention: math, lm-transformer": (
        "lm-transformer", TRANSFORMER, 16, "adamw", {"attention": "math"},
    ),
    "attention: flash, lm-transformer": (
        "lm-transformer", TRANSFORMER, 16, "adamw", {"attention": "flash"},
    ),
    "compile: inductor, lm-transformer": (
        "lm-transformer", TRANSFORMER, 16, "adamw", {"compile": True},
    ),
    "compile: inductor, mnist-simple-cnn": (
        "mnist-simple-cnn", {}, 16, "sgd", {"compile": True},
    ),
    "compile: inductor, cifar10-resnet8": (
        "cifar10-resnet8", {}, 32, "sgd", {"compile": True},
    ),
    "channels_last, mnist-simple-cnn": (
        "mnist-simple-cnn", {}, 16, "sgd", {"channels_last": True},
    ),
    "checkpoint, lm-transformer": (
        "lm-transformer", TRANSFORMER, 16, "adamw", {"checkpoint": True},
    ),
    "bfloat16, lm-transformer": (
        "lm-transformer", TRANSFORMER, 16, "adamw", {"precision": "bfloat16"},
    ),
}  # fmt: skip
"""What is measured: workload, its fields, batch size, optimizer, technique."""


def engine(
    workload: str, fields: dict[str, Any], batch: int, optimizer: str, technique: dict[str, Any]
) -> Engine:
    """One model that trains with ``technique``."""
    of = study(workload, batch, 1)
    ref = replace(of.workload, fields=fields)
    of = replace(of, workload=ref, optimizer=optimizer, technique=technique)
    return make_engine("module", StudyContext.load(of), (trial(0),))


def seconds(run: Engine, steps: int) -> float:
    """Processor time of so many steps."""
    began = time.process_time()
    run.advance(steps)
    return time.process_time() - began


def rows() -> list[dict[str, object]]:
    """One row a technique, for the table in docs/."""
    torch.set_num_threads(1)
    table: list[dict[str, object]] = []
    for name, (workload, fields, batch, optimizer, technique) in CASES.items():
        plain = engine(workload, fields, batch, optimizer, {})
        changed = engine(workload, fields, batch, optimizer, technique)
        for each in (plain, changed):
            each.advance(3)  # compiles
        steps = max(1, round(SECONDS * 3 / max(seconds(plain, 3), 1e-3)))
        ratios = [seconds(plain, steps) / seconds(changed, steps) for _ in range(ROUNDS)]
        low, middle, high = statistics.quantiles(ratios)
        table.append(
            {
                "what": f"{name}, batch {batch}",
                "measured": f"{middle:.2f}× the plain speed ({low:.2f} … {high:.2f})",
                "wanted": "",
            }
        )
        print(table[-1], flush=True)
    return table
