"""Speed of the stacked engine with a technique, relative to plain training of the same models.

64 models of digits-mlp, batch 64, SGD. The plain study and those with a technique take turns, a few
steps each, within one run: other work on the machine is spread over all of them. Ratios are of
processor time, which waiting for a core does not change; the median of the rounds counts, with
its quartiles.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import torch

from benchmarks.engines import study, trial
from experiments.engines import Engine, make_engine
from experiments.training.study_context import StudyContext

MODELS = 64
BATCH_SIZE = 64
ROUNDS = 9
STEPS = 10
BUDGET = 2_000
WANTED = 0.7

CASES: dict[str, dict[str, object]] = {
    "clip": {"clip": 1.0},
    "clip, by value": {"clip": {"value": 0.01}},
    "ema": {"ema": 0.99},
    "weight_decay": {"weight_decay": 1e-4},
    "weight_decay, coupled": {"weight_decay": {"rate": 1e-4, "kind": "coupled"}},
    "label_smoothing": {"label_smoothing": 0.1},
    "dropout": {"dropout": 0.1},
    "gradient_noise": {"gradient_noise": 1e-4},
    "swa": {"swa": {"begin": 0.5}},
    "lookahead": {"lookahead": 5},
    "prune": {"prune": 0.9},
    "prune, by gradient": {"prune": {"sparsity": 0.9, "by": "gradient"}},
    "prune, gradually": {"prune": {"sparsity": 0.9, "until": 0.8}},
    "quantize": {"quantize": 8},
    "distill": {"distill": "mnist8-fc"},
}
"""What is measured, and its technique."""


def engine(technique: dict[str, object]) -> Engine:
    """A stack of models that train with ``technique``."""
    of = study("digits-mlp", BATCH_SIZE, MODELS)
    context = StudyContext.load(replace(of, technique=technique, budget_steps=BUDGET))
    return make_engine("stacked", context, tuple(trial(i) for i in range(MODELS)))


def seconds(stack: Engine) -> float:
    """Processor time of ``STEPS`` steps."""
    began = time.process_time()
    stack.advance(STEPS)
    return time.process_time() - began


def rows() -> list[dict[str, object]]:
    """One row a technique, for the table in docs/."""
    torch.set_num_threads(1)
    stacks = {name: engine(technique) for name, technique in {"": {}, **CASES}.items()}
    for stack in stacks.values():
        stack.advance(STEPS)
    rounds = [{name: seconds(stack) for name, stack in stacks.items()} for _ in range(ROUNDS)]
    table: list[dict[str, object]] = []
    for name in CASES:
        ratios = [each[""] / each[name] for each in rounds]
        low, middle, high = statistics.quantiles(ratios)
        table.append(
            {
                "what": name,
                "measured": f"{middle:.2f} of the plain speed ({low:.2f} … {high:.2f})",
                "wanted": f"≥ {WANTED}",
            }
        )
    return table
