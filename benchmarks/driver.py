"""The driver's own cost: processor time a trial of planning, dispatching, taking in and displaying.

A hundred thousand trials of 60 studies, and of a thousand; their packs end at once, on as many
slots as a large cluster has. What workers do, and Ray, is not in it (``benchmarks.cluster``).
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from benchmarks.memory import peak_gigabytes
from experiments.execution.executors.base import Executor
from experiments.plan import Layout, Outcome, Trial
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment

SLOTS = 64
SIZES = (1_000, 10_000, 100_000)
STUDIES = 60
_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw")


class Instant(Executor):
    """An executor whose packs end at once: one trial in five reaches its target."""

    name = "instant"

    def pool(self, layout: Layout) -> InstantPool:
        del layout
        return InstantPool()


class InstantPool:
    """``SLOTS`` packs are out at a time; the oldest ends first."""

    slots, device = SLOTS, "cpu"

    def run(self, dispatcher: Dispatcher) -> None:
        out: deque[Assignment] = deque()
        while True:
            while len(out) < SLOTS and isinstance(assignment := dispatcher.next(), Assignment):
                out.append(assignment)
                dispatcher.receive(assignment.begun("stacked"))
                dispatcher.receive(assignment.progress(25, 25, (0.5,)))
            if not out:
                return
            _end(out.popleft(), dispatcher)


def _end(assignment: Assignment, dispatcher: Dispatcher) -> None:
    outcomes = [_outcome(trial, assignment) for trial in assignment.pack.trials]
    dispatcher.receive(assignment.ended(outcomes))
    dispatcher.receive(assignment.ended(outcomes, assignment.pack.id))
    dispatcher.receive(assignment.over("done"))


def _outcome(trial: Trial, assignment: Assignment) -> Outcome:
    steps = assignment.pack.study.budget_steps
    hit = 10 + trial.seed % 400 if trial.seed % 5 == 0 else None
    return Outcome(
        trial=trial.id,
        status="COMPLETE",
        stop_reason="target" if hit else "budget",
        steps_run=hit or steps,
        examples_run=(hit or steps) * assignment.pack.study.batch_size,
        steps_to_target=hit,
        last_miss=hit - 1 if hit else None,
        train_seconds=60.0,
    )


@dataclass(frozen=True)
class Cost:
    """What a sweep cost its driver."""

    trials: int
    seconds: float
    """Of processor, from the experiment's file to the summary."""
    gigabytes: float
    """Most memory of the process."""


def experiment(trials: int, studies: int = STUDIES) -> Any:
    """An experiment of at least so many trials."""
    from experiments.config.compile import load

    shapes = -(-studies // STUDIES)
    return load(
        {
            "name": "driver",
            "workload": "digits-mlp",
            "grid": {
                "batch_size": "1..1024, full",
                "optimizer": list(_OPTIMIZERS),
                "technique": [{"clip": 1.0 + number} for number in range(shapes)],
            },
            "trials": -(-trials // (shapes * STUDIES)),
        }
    )


def cost(trials: int, studies: int = STUDIES) -> Cost:
    """The cost of a sweep of at least ``trials``, in this process."""
    from rich.console import Console

    from batchscale.output.display import Display
    from experiments.execution.sweep import sweep

    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder, Display(Console(file=io.StringIO())) as display:
        did = sweep(
            experiment(trials, studies),
            results=folder,
            address=f"{__file__}:Instant",
            observer=display,
        )
    if did.trained < trials:  # no rows are written: the dataset holds none
        raise SystemExit(f"the sweep is not complete: {did}")
    peak = peak_gigabytes()
    return Cost(trials=did.trained, seconds=time.process_time() - began, gigabytes=peak)


def measure(trials: int, studies: int = STUDIES) -> Cost:
    """``cost`` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.driver", str(trials), str(studies)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Cost(**json.loads(done.stdout.strip().splitlines()[-1]))


def rows() -> list[dict[str, object]]:
    """One row a size, for the table in docs/."""
    table: list[dict[str, object]] = []
    for trials, studies in (*((size, STUDIES) for size in SIZES), (SIZES[-1], 960)):
        run = measure(trials, studies)
        each = f"{1e3 * run.seconds / run.trials:.2f} ms a trial, {run.gigabytes:.2f} GB"
        what = f"the driver of {run.trials:,} trials of {studies} studies, without Ray and rows"
        table.append({"what": what, "measured": each, "wanted": "≤ 5 ms, flat; < 2 GB"})
    return table


if __name__ == "__main__":
    measured = cost(*(int(number) for number in sys.argv[1:]))
    print(json.dumps(measured.__dict__))
