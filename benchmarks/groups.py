"""Worker groups: a step of two CPU ranks against half of one rank's, and what a group costs.

The ranks of the first part are two processes without Ray. They take turns: rank 0 alone on the
whole batch, the sum of the gradient, both ranks on their shares. The second part is a sweep of
packs of a single trial on a Ray of its own; its clock starts when the driver waits for workers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

STEP = {
    "name": "groups",
    "workload": "mnist-simple-cnn",
    "grid": {"batch_size": [512], "optimizer": ["sgd"]},
    "engine": "module",
    "workers": 2,
    "trials": 4,
    "budget": "1000 steps",
}
PACKS = {
    "name": "groups",
    "workload": "digits-softmax",
    "grid": {"batch_size": [64], "optimizer": ["sgd"]},
    "engine": "module",
    "workers": 2,
    "trials": 32,
    "budget": "20 steps",
    "evaluation_ratio": 2.0,
    "target": "validation_error < 0.9",
}
ROUNDS, STEPS = 7, 4


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _rank(rank: int, port: int, answers: Any) -> None:
    """One of two ranks; rank 0 puts a tuple of seconds a step for each round."""
    import torch
    import torch.distributed as dist

    from experiments.config.compile import load
    from experiments.engines import make_engine
    from experiments.execution.ray.ranks import process_group
    from experiments.parallel.ranks import SOLO, TorchRanks
    from experiments.training.study_context import StudyContext

    torch.set_num_threads(1)
    address = process_group.LOOPBACK
    store = dist.TCPStore(address, port, is_master=False)
    process_group.join(store, rank, 2, address=address, gpu=None, timeout=300)
    (plan,) = load(STEP).plans()
    trials = plan.trials(0, 1)
    alone = make_engine("module", StudyContext.load(plan.study, "cpu", SOLO), trials)
    both = make_engine("module", StudyContext.load(plan.study, "cpu", TorchRanks()), trials)
    size = sum(weights.numel() for weights in alone.weights(0).values())
    gradient = torch.zeros(size)

    def in_turn(call: Callable[[], object], *, here: bool = True) -> float:
        dist.barrier()
        seconds = _timed(call) if here else 0.0
        dist.barrier()
        return seconds

    for turn in range(1 + ROUNDS):  # the first one warms up
        single = in_turn(lambda: alone.advance(STEPS), here=rank == 0)
        message = in_turn(lambda: [dist.all_reduce(gradient) for _ in range(STEPS)])
        two = in_turn(lambda: both.advance(STEPS))
        if rank == 0 and turn:
            answers.put((single / STEPS, message / STEPS, two / STEPS))
    process_group.leave()


def step() -> dict[str, object]:
    """A step of two ranks against the ideal: half of one rank's, and the sum of the gradient."""
    from experiments.execution.ray.ranks import process_group

    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    store = process_group.open_store(process_group.LOOPBACK)
    ranks = [context.Process(target=_rank, args=(r, store.port, answers)) for r in range(2)]
    for process in ranks:
        process.start()
    rounds = [answers.get(timeout=600) for _ in range(ROUNDS)]
    for process in ranks:
        process.join(60)
    ratios = sorted(two / (single / 2 + message) for single, message, two in rounds)
    single, message, two = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "what": "a step of mnist-simple-cnn at batch 512 on 2 CPU ranks, against half of one "
        f"rank's ({single * 1e3:.0f} ms) and the sum of the gradient ({message * 1e3:.1f} ms)",
        "measured": f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f} … {ratios[-1]:.2f}), "
        f"{two * 1e3:.0f} ms",
        "wanted": "≤ 1.15×",
    }


def bring_up() -> dict[str, float]:
    """Seconds to the first pack, seconds of each later pack besides its training, peak GiB."""
    import ray

    from experiments.config.compile import load
    from experiments.execution.sweep import sweep
    from experiments.scheduling.messages import Begun, Ended, Event, Stage

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    times: dict[str, list[float]] = {"wait": [], "started": [], "trained": [], "bytes": []}

    def observe(event: Event) -> None:
        if isinstance(event, Stage) and "waiting" in event.text:
            times["wait"].append(time.perf_counter())
        elif isinstance(event, Begun):
            times["started"].append(time.perf_counter())
            times["bytes"].append(_group_bytes())
        elif isinstance(event, Ended) and event.run is None:
            for each in event.outcomes:
                parts = (each.train_seconds, each.evaluation_seconds, each.other_seconds)
                times["trained"].append(sum(parts))

    with tempfile.TemporaryDirectory() as folder:
        sweep(load(PACKS), results=folder, address="auto", observer=observe, pack_size=1)
    ray.shutdown()
    later = (times["started"][-1] - times["started"][0]) / (len(times["started"]) - 1)
    return {
        "first": times["started"][0] - times["wait"][0],
        "later": later - statistics.mean(times["trained"]),
        "gib": max(times["bytes"]) / 2**30,
    }


def _group_bytes() -> float:
    """Memory of this machine's ranks and their Tune actors; shared pages count in parts."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, StopIteration):  # it has ended meanwhile
            name = (folder / "cmdline").read_bytes()
            if name.startswith((b"ray::RankProcess", b"ray::train_group", b"ray::ImplicitFunc")):
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return total * 1024.0


def rows() -> list[dict[str, object]]:
    """One row a comparison, for the table in docs/."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.groups", "bring_up"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    cost = json.loads(done.stdout.strip().splitlines()[-1])
    table = [
        ("a group of 2 ranks: seconds to its first pack", f"{cost['first']:.1f} s", "≤ 8 s"),
        ("… a later pack of one trial, besides its training", f"{cost['later']:.2f} s", "≤ 0.5 s"),
        ("… memory of its processes", f"{cost['gib']:.2f} GiB", "≤ 2.2 GB"),
    ]
    costs: list[dict[str, object]] = [
        {"what": what, "measured": measured, "wanted": wanted} for what, measured, wanted in table
    ]
    return [step(), *costs]


if __name__ == "__main__":
    print(json.dumps(bring_up() if sys.argv[1:] else rows(), indent=None, ensure_ascii=False))
