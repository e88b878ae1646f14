"""The driver's own cost: processor time a trial of planning, dispatching, taking in and displaying.

A hundred thousand trials of 60 studies, and of a thousand; their packs end at once, on as many
slots as a large cluster has. What workers do, and Ray, is not in it.
"""

from __future__ import annotations

import io
import tempfile
from collections import deque
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Row, measured
from experiments.execution.executors.base import Executor
from experiments.execution.signals import Stop
from experiments.plan import Layout, Outcome, Trial
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Job, More

SLOTS = 64
SIZES = (1_000, 10_000, 100_000)
STUDIES = 60
_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw")
_POLL_PACKS = 32
"""Packs between two polls: as at 60 s a pack on 64 slots, every 30 s."""


class Instant(Executor):
    """An executor whose packs end at once: one trial in five reaches its target."""

    name = "instant"

    def pool(self, layout: Layout) -> InstantPool:
        del layout
        return InstantPool()


class InstantPool:
    """``SLOTS`` packs are out at a time; the oldest ends first."""

    slots, device = SLOTS, "cpu"

    def run(self, dispatcher: Dispatcher, stop: Stop, poll: Callable[[], None]) -> None:
        dispatcher.share = _shared.__setitem__
        dispatcher.give = _given.__setitem__
        out: deque[Job] = deque()
        ended = 0
        while not stop:
            while len(out) < SLOTS and isinstance(job := dispatcher.next(), Job):
                out.append(job)
                dispatcher.receive(job.begun("stacked"))
                dispatcher.receive(job.progress(25, 25, (0.5,)))
            if not out:
                return
            _end(out.popleft(), dispatcher)
            ended += 1
            if ended % _POLL_PACKS == 0:
                poll()


_shared: dict[str, tuple[int, ...]] = {}
_given: dict[str, More] = {}


def _end(job: Job, dispatcher: Dispatcher) -> None:
    outcomes = [_outcome(trial, job) for trial in job.pack.trials]
    dispatcher.receive(job.ended(outcomes))
    dispatcher.receive(job.ended(outcomes, job.pack.id))
    dispatcher.receive(job.over("done"))


def _outcome(trial: Trial, job: Job) -> Outcome:
    steps = job.pack.study.budget_steps
    hit = 10 + trial.seed % 400 if trial.seed % 5 == 0 else None
    return Outcome(
        trial=trial.id,
        status="COMPLETE",
        stop_reason="target" if hit else "budget",
        steps_run=hit or steps,
        examples_run=(hit or steps) * job.pack.study.batch_size,
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
