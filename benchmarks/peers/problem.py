"""What every program is given: the trials, the data, a fresh model, the batches of a trial, and
when it is evaluated. Their lines are counted in no program."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

EACH = "BATCHSCALE_PEER_TRIALS"
"""The environment variable of the trials of each batch size: 12 unless set."""
TRIALS = int(os.environ.get(EACH, "12"))
SETTINGS = ["grid.batch_size=[8, 64, 512]", "grid.optimizer=[momentum]", f"trials={TRIALS}"]
"""The demo's changes: two metaparameters."""
TARGET = 0.04
"""Of the validation error, strictly below."""


class Trial(NamedTuple):
    """A training run: its study's batch size, its metaparameters, and the seed of its streams."""

    batch_size: int
    learning_rate: float
    momentum: float
    seed: int
    budget: int
    """Steps that it trains at most."""


def studies() -> dict[int, list[Trial]]:
    """The trials of each batch size."""
    from experiments.config.compile import load

    by_batch_size = {}
    for plan in load("digits", SETTINGS).plans():
        size, budget = plan.study.batch_size, plan.study.budget_steps
        rows = plan.trials(0, TRIALS)
        given = [(each.metaparameters, each.seed) for each in rows]
        by_batch_size[size] = [
            Trial(size, float(point["learning_rate"]), float(point["momentum"]), seed, budget)
            for point, seed in given
        ]
    return by_batch_size


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (1297, 64) and labels, validation images (500, 64) and labels."""
    from workloads.digits import splits

    (x, y), (test_x, test_y) = (splits()[name] for name in ("train", "validation"))
    return x, y, test_x, test_y


def model(trial: Trial) -> nn.Module:
    """An MLP 64-64-10, initialized from the trial's own stream."""
    from experiments.seeds import derive

    torch.manual_seed(derive(trial.seed, "init"))
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def batches(trial: Trial, examples: int) -> Iterator[Tensor]:
    """The examples of each step: shuffled epochs, without their last short batch."""
    from experiments.seeds import derive

    for epoch in itertools.count():
        shuffle = np.random.Generator(np.random.SFC64(derive(trial.seed, "order", epoch)))
        order = torch.from_numpy(shuffle.permutation(examples))
        yield from order.split(trial.batch_size)[: examples // trial.batch_size]


def evaluated(budget: int) -> set[int]:
    """The steps at which a trial is evaluated, each 1.05 times the one before, and the last."""
    steps, step = {budget}, 1
    while step < budget:
        steps.add(step)
        step = max(step + 1, math.ceil(step * 1.05))
    return steps


def report(trained: int, reached: Mapping[int, list[int | None]]) -> None:
    """Print what a program found: the steps that it trained, and those to the target of each trial
    that reached it, by batch size."""
    minima: dict[int, int] = {}
    for size, steps in reached.items():
        hits = [each for each in steps if each is not None]
        if hits:
            minima[size] = min(hits)
    print(json.dumps({"steps": trained, "minima": minima}))


def by_size(pairs: Iterator[tuple[int, int | None]]) -> dict[int, list[int | None]]:
    """Steps to target by batch size, from pairs of both."""
    steps_by_size: dict[int, list[int | None]] = defaultdict(list)
    for size, steps in pairs:
        steps_by_size[size].append(steps)
    return steps_by_size
