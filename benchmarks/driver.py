"""The driver's own cost: processor time a trial of planning, dispatching, taking in and displaying.

A hundred thousand trials of 60 studies, and of a thousand; their packs end at once, on as many
slots as a large cluster has. What workers do, and Ray, is not in it.
"""

from __future__ import annotations

import io
import tempfile
from collections import deque
from typing import Any

from benchmarks.harness import Row, measured
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


def planned(trials: int, studies: int = STUDIES) -> int:
    """A sweep of at least ``trials``, in this process; how many there were."""
    from rich.console import Console

    from batchscale.output.display import Display
    from experiments.execution.sweep import sweep

    with tempfile.TemporaryDirectory() as folder, Display(Console(file=io.StringIO())) as display:
        did = sweep(
            experiment(trials, studies),
            results=folder,
            address=f"{__file__}:Instant",
            observer=display,
        )
    if did.trained < trials:  # no rows are written: the dataset holds none
        raise SystemExit(f"the sweep is not complete: {did}")
    return did.trained


def rows() -> list[Row]:
    """One row a size, for the table in docs/."""
    table: list[Row] = []
    for trials, studies in (*((size, STUDIES) for size in SIZES), (SIZES[-1], 960)):
        cost = measured(planned, trials, studies)
        each = f"{1e3 * cost.processor / cost.value:.2f} ms a trial, {cost.gigabytes:.2f} GB"
        what = f"the driver of {cost.value:,} trials of {studies} studies, without Ray and rows"
        table.append(Row(what, each, "≤ 5 ms, flat; < 2 GB"))
    return table
