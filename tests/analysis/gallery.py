"""A results folder with something for every figure of the paper: exact curves, no training.

A trial's error falls as floor + (0.9 - floor) exp(-step / τ), τ from its batch size, its effective
learning rate's distance from the best one, and the workload; so that every number is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from results.schema import STUDIES
from results.store import Store

SIZES = (8, 32, 128, 512, 1297)
TRAIN = 1297
POINTS = 8


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One workload and optimizer over all batch sizes."""

    experiment: str
    workload: str = "digits-mlp"
    dataset: str = "digits"
    model: str = "mlp"
    optimizer: str = "sgd"
    fields: dict[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ("validation_error < 0.1",)
    knee: float = 60.0
    plateau: float = 12.0
    floor: float = 0.03
    train: int = TRAIN
    stops: bool = False
    smoothing: tuple[float, ...] = ()
    """Values of the metaparameter label_smoothing, by turns."""


GOALS = ("validation_error < 0.2", "validation_error < 0.1", "validation_error < 0.06")
SWEEPS = (
    Sweep(experiment="goals", targets=GOALS, fields={"width": 64}),
    Sweep(experiment="goals", targets=GOALS, fields={"width": 64}, optimizer="momentum", knee=240),
    Sweep(experiment="widths", fields={"width": 16}, knee=25.0, floor=0.05),
    Sweep(experiment="widths", fields={"width": 16}, knee=80.0, floor=0.05, optimizer="momentum"),
    Sweep(experiment="softmax", workload="digits-softmax", model="softmax", knee=30.0, floor=0.06),
    Sweep(experiment="fashion", workload="fashion8-mlp", dataset="fashion8", knee=90.0,
          targets=("validation_error < 0.3",), floor=0.2, fields={"width": 64}),
    Sweep(experiment="subsets", fields={"width": 64, "examples": 300}, knee=40.0, train=300),
    Sweep(experiment="subsets", fields={"width": 64, "examples": 600}, knee=50.0, train=600),
    Sweep(experiment="smoothing", fields={"width": 64}, optimizer="nesterov",
          smoothing=(0.0, 0.1)),
    Sweep(experiment="stopping", workload="cifar10-resnet8", dataset="cifar10", model="resnet8",
          targets=("validation_error < 0.3",), floor=0.2, stops=True),
)  # fmt: skip


def evaluation_steps(last: int) -> list[int]:
    """A geometric grid of steps."""
    grid = np.unique(np.ceil(1.25 ** np.arange(1, 60)).astype(int))
    return [int(step) for step in grid if step <= last]


def trials_of(sweep: Sweep) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each trial's row and its measurements."""
    rng = np.random.default_rng(len(sweep.experiment) * 7 + int(sweep.knee))
    goal = float(sweep.targets[-1].split()[-1])
    for size in SIZES:
        best = sweep.plateau * (1 + sweep.knee / size)
        right = 0.002 * min(size, sweep.knee * 2) ** 0.8
        last = 400 + 20 * sweep.train // size
        for index in range(POINTS):
            momentum = None if sweep.optimizer == "sgd" else float(1 - 10 ** rng.uniform(-2, -0.3))
            rate = float(right * 10 ** rng.uniform(-1.5, 1.2))
            effective, rate = rate, rate * (1 if momentum is None else 1 - momentum)
            smoothing = sweep.smoothing[index % len(sweep.smoothing)] if sweep.smoothing else None
            tau = best * np.exp(0.6 * abs(np.log(effective / right))) * (1.2 if smoothing else 1)
            dead = effective > 9 * right
            floor = sweep.floor * (0.8 if smoothing else 1.0)
            steps = evaluation_steps(last)
            errors = [floor + (0.9 - floor) * float(np.exp(-step / tau)) for step in steps]
            hits = [step for step, error in zip(steps, errors, strict=True) if error < goal]
            first = None if dead or not hits else hits[0]
            if dead:
                steps = steps[:6]
            elif sweep.stops and first is not None:
                steps = [step for step in steps if step <= first]
            group = group_of(sweep, size)
            row = {
                **group,
                "trial": f"{group['study']}-{index}",
                "index": index,
                "role": "search",
                "learning_rate": rate,
                "momentum": momentum,
                "effective_learning_rate": effective,
                "label_smoothing": smoothing,
                "metaparameters": {"learning_rate": rate},
                "status": "INFEASIBLE" if dead else "COMPLETE",
                "stop_reason": "diverged" if dead else ("target" if first else "budget"),
                "target_metric": "validation_error",
                "target_value": goal,
                "lower_is_better": True,
                "stop_at_target": sweep.stops,
                "budget_steps": last,
                "evaluation_ratio": 1.25,
                "steps_to_target": first,
                "last_miss": max([0, *(s for s in evaluation_steps(last) if first and s < first)])
                if first
                else None,
                "steps_run": steps[-1] if dead or (sweep.stops and first) else last,
            }
            yield (
                row,
                [
                    {"trial": row["trial"], "step": step, "metrics": {"validation_error": error}}
                    for step, error in zip(steps, errors, strict=False)
                ],
            )


def group_of(sweep: Sweep, size: int) -> dict[str, Any]:
    """What a study and its trials have in common."""
    parts = [sweep.experiment, sweep.optimizer, *map(str, sweep.fields.values()), size]
    train_examples = {"train_examples": sweep.train} if "train_examples" in STUDIES.names else {}
    return {
        "experiment": sweep.experiment,
        "study": "-".join(map(str, parts)),
        "workload": sweep.workload,
        "dataset": sweep.dataset,
        "model": sweep.model,
        "optimizer": sweep.optimizer,
        "schedule": "constant",
        "batch_size": size,
        "example_unit": "example",
        "fields": sweep.fields,
        **train_examples,
    }


Row = dict[str, Any]


def as_it_is(row: Row) -> Row:
    return row


def write(root: Path, change: Callable[[Row], Row] = as_it_is) -> Path:
    """The whole folder, each row of a study, a trial or a measurement as ``change`` makes it."""
    store = Store(root)
    store.add_studies(
        [change({**group_of(s, b), "targets": list(s.targets)}) for s in SWEEPS for b in SIZES]
    )
    for experiment in dict.fromkeys(sweep.experiment for sweep in SWEEPS):
        rows = [pair for s in SWEEPS if s.experiment == experiment for pair in trials_of(s)]
        evaluations = [change(row) for _, measurements in rows for row in measurements]
        store.commit(experiment, measurements=evaluations, trials=[change(row) for row, _ in rows])
    return root
