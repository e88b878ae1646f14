"""A sweep in a process of its own, to be killed. Every event is a line."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from batchscale.output.errors import report
from experiments.config.compile import Experiment, load
from experiments.execution.executors import local_ray
from experiments.execution.signals import Interrupted
from experiments.execution.sweep import sweep
from experiments.execution.worker import MakeTrainer, Pace
from experiments.plan import Measurement, Outcome
from experiments.scheduling.messages import Event
from experiments.training.pack_training import Training
from results.errors import ClearError
from results.run_state import processes
from tests.experiments import faulty

GIVEN = ("FAKE_SECONDS", "FAKE_GATE", "FAKE_FAULT", "FAKE_RAISE", "REAL_SECONDS")
"""Variables of the environment that the trainers here read."""
PACE = Pace(ask=0.1, renew=0.5, commit=0.3, snapshot=0.3, stop=1.0, leave=1.0)


class SlowTraining(Training):
    """The real thing, pausing at each look, so that a kill always comes in its middle."""

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        for events in super().run(should_stop):
            yield events
            time.sleep(float(os.environ.get("REAL_SECONDS", "0")))


def fake(**changes: Any) -> Experiment:
    """Two studies of 20 trials, some 50 looks each."""
    return load(
        {
            "name": "killed",
            "workload": "digits-softmax",
            "grid": {"batch_size": "64, 128", "optimizer": ["sgd"]},
            "search": {"learning_rate": {"linear": [0.05, 2.0]}},
            "trials": 20,
            "budget": "100 steps",
            "target": "validation_error < 0.05",
            "keep": "off",
            **changes,
        }
    )


def real() -> Experiment:
    """Three studies of 6 trials that take some seconds and end one after the other."""
    return load(
        {
            "name": "killed",
            "workload": "digits-softmax",
            "grid": {"batch_size": "16, 32, 64", "optimizer": ["sgd"]},
            "search": {"learning_rate": {"log": [0.001, 0.1]}},
            "trials": 6,
            "budget": "2500 steps",
            "target": "validation_error < 0.06",
            "keep": "off",
            "engine": "stacked",
        }
    )


def many() -> Experiment:
    """Two studies of 100 trials each, some 50 evaluations long."""
    return fake(trials=100)


def say(event: Event) -> None:
    print(event, flush=True)


def fault() -> str:
    """What the sweep's trials, or its storage, do wrong."""
    return os.environ.get("FAKE_FAULT", "")


def main(root: str, address: str, kind: str) -> None:
    """Sweep ``many``, ``real`` or 500 trials; exit 130 when interrupted."""
    trainer: MakeTrainer = SlowTraining if kind == "real" else faulty.TRAINERS[fault()]
    of = {"real": real, "many": many, "500": lambda: fake(trials=250)}[kind]()
    faulty.break_storage(fault(), root)
    if address == "auto":  # in a process of its own
        local_ray._ALONE_SECONDS = 0.0  # a small sweep that is to have a Ray
    seconds = os.environ.get("FAKE_FOR")
    hang = os.environ.get("FAKE_HANG")
    pace = replace(PACE, hang=float(hang), silent=2 * float(hang)) if hang else PACE
    try:
        did = sweep(
            of,
            results=root,
            address=address,
            num_cpus=1,
            trainer=trainer,
            pace=pace,
            observer=say,
            seconds=float(seconds) if seconds else None,
        )
    except ClearError as error:  # as the command line does
        sys.exit(report(error))
    except Interrupted as interrupted:
        print(interrupted.summary)
        sys.exit(130)
    print(did)
    if did.failed:
        sys.exit(3)


def alone(root: str, address: str, kind: str, log: str, given: Mapping[str, str]) -> None:
    """``main`` in a process and a group of its own: what it says goes into the file ``log``."""
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(given)
    if "FAKE_HOST" in given:  # as on another machine, in another folder
        processes.machine = functools.cache(lambda: given["FAKE_HOST"])
        os.chdir(tempfile.mkdtemp())
    main(root, address, kind)
