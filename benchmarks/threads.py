"""Threads of a pack against packs beside each other, on all cores: why a pack has one thread.

A pack trains in a process of its own: alone on one thread, alone on a thread a core, and then one
pack a core at the same time, each on one thread. Rates are models · steps a second of all packs.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from multiprocessing.connection import Connection

import torch

from benchmarks.engines import calibrate, rate, study, trial
from experiments.engines import make_engine
from experiments.training.study_context import StudyContext

CASES = (
    ("digits-mlp", 8, 64),
    ("digits-mlp", 512, 64),
    ("mnist-simple-cnn", 16, 4),
    ("mnist-simple-cnn", 256, 4),
    ("cifar10-resnet8", 64, 4),
)
"""Workload, batch size, and the models of a pack."""
TURNS = 7


def _train(workload: str, batch_size: int, models: int, channel: Connection) -> None:
    """In a process: train the pack on so many threads whenever asked, and answer with its rate."""
    torch.set_flush_denormal(True)  # as the training loop does
    context = StudyContext.load(study(workload, batch_size, models))
    engine = make_engine("auto", context, tuple(trial(i) for i in range(models)))
    torch.set_num_threads(1)
    steps = calibrate(engine.advance)
    channel.send(None)
    while threads := channel.recv():
        torch.set_num_threads(threads)
        channel.send(rate(engine.advance, steps) * models)


def measured(workload: str, batch_size: int, models: int) -> tuple[float, float]:
    """How many times the rate of a pack on one thread a thread a core has, and a pack a core."""
    cores = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(cores)]
    processes = [
        context.Process(target=_train, args=(workload, batch_size, models, theirs))
        for _, theirs in pipes
    ]
    for process in processes:
        process.start()
    ours = [pipe for pipe, _ in pipes]
    for pipe in ours:
        pipe.recv()

    def rates(threads: int, packs: int) -> float:
        for pipe in ours[:packs]:
            pipe.send(threads)
        return sum(pipe.recv() for pipe in ours[:packs])

    turns = [(rates(1, 1), rates(cores, 1), rates(1, cores)) for _ in range(TURNS)]
    for pipe in ours:
        pipe.send(0)
    for process in processes:
        process.join()
    return (
        statistics.median(threads / single for single, threads, _ in turns),
        statistics.median(packs / single for single, _, packs in turns),
    )


def rows() -> list[dict[str, object]]:
    """One row a case, for the table in docs/."""
    cores = os.cpu_count() or 1
    table: list[dict[str, object]] = []
    for workload, batch_size, models in CASES:
        threads, packs = measured(workload, batch_size, models)
        table.append(
            {
                "what": f"{workload}, batch {batch_size}, packs of {models} on {cores} cores",
                "measured": f"a pack of {cores} threads {threads:.2f}×, {cores} packs of one "
                f"thread {packs:.2f}× a pack of one thread",
                "wanted": "",
            }
        )
        print(table[-1], flush=True)
    return table
