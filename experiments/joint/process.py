"""Several packs at once on one device: what a worker does whose models are too small for it.

The packs are of one shape and take their steps jointly (``joint.training``). Each is a
pack as any other, with a claim, a heartbeat and a snapshot of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from experiments.execution.worker import MakeTrainer
from experiments.scheduling.jobs import Job
from experiments.training.threads import use_single_thread

MOST_PACKS = 8
"""Packs at once."""
_POLL_SECONDS = 0.2


def is_shared(job: Job) -> bool:
    """Whether other packs may train beside a pack: steps can be captured on its device, and one
    worker trains it."""
    from experiments.engines.capture.captured_step import RECORDERS

    return job.device in RECORDERS and job.pack.study.layout.workers == 1


def train_beside(
    first: Job,
    run: Callable[[Job, MakeTrainer], object],
    another: Callable[[], Job | None],
    trainer: MakeTrainer,
) -> None:
    """Train a pack in this thread, and others beside it while they are small; until all of them
    have ended. Call it within ``single_thread``: libraries count threads for the whole process.

    Args:
        run: trains a pack with a trainer.
        another: gives a pack of the same shape, if there is one now.

    Raises:
        Exception: the first that ``run`` has raised; no pack is begun after it.
    """
    from experiments.joint.training import JointTraining

    joint, errors, over = JointTraining(), list[Exception](), threading.Event()
    guests: list[threading.Thread] = []

    def train(job: Job) -> None:
        try:
            with joint.turns():
                use_single_thread()
                run(job, partial(trainer, beside=joint))
        except Exception as error:
            errors.append(error)

    def begin_others() -> None:
        while not over.wait(_POLL_SECONDS):
            training = 1 + sum(guest.is_alive() for guest in guests)
            if errors or not joint.can_grow or training >= MOST_PACKS:
                continue
            try:
                job = another()
            except Exception as error:
                errors.append(error)
                continue
            if job is not None:
                joint.enter()
                name = f"pack {job.pack.id}"
                guests.append(threading.Thread(target=train, args=(job,), name=name, daemon=True))
                guests[-1].start()

    host = threading.Thread(target=begin_others, name="packs beside", daemon=True)
    joint.enter()
    host.start()
    try:
        train(first)
        while (guest := next((g for g in guests if g.is_alive()), None)) is not None:
            guest.join(_POLL_SECONDS)  # signals come in between
    finally:
        over.set()
        host.join()
    for guest in guests:
        guest.join()
    if errors:
        raise errors[0]
