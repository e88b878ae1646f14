"""Where the demo's seconds go, beside what its arithmetic needs on this machine (``floor``)."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from typing import Any

import pandas as pd

from benchmarks.floor import NUMBER, Rates, operations_of_example, update_bytes
from experiments.config.compile import Experiment, load
from experiments.execution.sweep import sweep
from experiments.scheduling.messages import Begun, Ended, Stage
from experiments.training.study_context import StudyContext
from results import open as open_results


class Timeline:
    """When a sweep did what, in seconds since it was asked for."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.stages: list[tuple[float, str]] = []
        self.first_pack: float | None = None
        self.last_trial = 0.0

    def observe(self, event: Any) -> None:
        """An observer of the sweep."""
        now = time.perf_counter() - self.began
        if isinstance(event, Stage):
            self.stages.append((now, event.text))
        elif isinstance(event, Begun) and self.first_pack is None:
            self.first_pack = now
        elif isinstance(event, Ended) and event.run is None:
            self.last_trial = now


def worked(experiment: Experiment, folder: str) -> tuple[Timeline, float, float]:
    """The demo as it goes, its seconds, and the processor seconds of the driver."""
    timeline = Timeline()
    before = resource.getrusage(resource.RUSAGE_SELF)
    sweep(experiment, results=folder, observer=timeline.observe)
    seconds, after = time.perf_counter() - timeline.began, resource.getrusage(resource.RUSAGE_SELF)
    driver = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return timeline, seconds, driver


def needed(
    experiment: Experiment, trials: pd.DataFrame, evaluated: int, rates: Rates
) -> dict[str, tuple[float, float, float]]:
    """Operations, bytes and least seconds of one core, by part."""
    study = experiment.plans()[0].study
    context = StudyContext.load(study)
    training, evaluation = operations_of_example(context)
    size = sum(p.numel() for p in context.workload.model().parameters())
    example_bytes = sum(x[0].nbytes for x in context.small_batch())
    split = sum(len(data) for name, data in context.splits.items() if name != "train")
    examples = trials.steps_run * trials.batch_size
    update = trials.optimizer.map(
        {name: update_bytes(name, size) for name in set(trials.optimizer)}
    )
    parts = {
        "steps": (
            float(examples.sum()) * training,
            float((trials.steps_run * update).sum()) + float(examples.sum()) * example_bytes,
        ),
        "evaluations": (
            evaluated * split * evaluation,
            float(evaluated) * (size * NUMBER + split * example_bytes),
        ),
    }
    return {
        part: (operations, moved, rates.seconds(operations, moved))
        for part, (operations, moved) in parts.items()
    }


def rows() -> list[dict[str, object]]:
    """One row a part, for the table in docs/."""
    cores, rates = os.cpu_count() or 1, Rates.measured()
    experiment = load("digits")
    with tempfile.TemporaryDirectory() as folder:
        timeline, seconds, driver = worked(experiment, folder)
        dataset = open_results(folder)
        trials = dataset.trials[dataset.trials.role != "repeat"]
        evaluated = len(dataset.measurements)
        packs = trials.groupby("pack")[["train_seconds", "evaluation_seconds", "other_seconds"]]
        spent = packs.max().sum()
        least = needed(experiment, trials, evaluated, rates)
    of_parts = {
        "steps": float(spent.train_seconds),
        "evaluations": float(spent.evaluation_seconds),
        "the rest of a pack: loading, recording, drawing the next trials": float(
            spent.other_seconds
        ),
    }
    idle = cores * seconds - sum(of_parts.values()) - driver
    of_parts |= {
        "the driver: tables of trials, decisions, files": driver,
        "Ray's start, waiting, and other processes": idle,
    }
    table: list[dict[str, object]] = [
        {
            "what": f"{cores} cores, one each: matrix products, memory",
            "measured": f"{rates.operations / 1e9:.0f} GFLOP/s, {rates.memory / 1e9:.1f} GB/s",
            "wanted": "",
        },
        {
            "what": f"the demo: {len(trials):,} trials, {int(trials.steps_run.sum()):,} steps, "
            f"{evaluated:,} evaluations",
            "measured": f"{seconds:.1f} s; the first pack trains after "
            f"{timeline.first_pack or seconds:.1f} s",
            "wanted": "≤ 60 s; ≤ 8 s",
        },
    ]
    for part, of_part in of_parts.items():
        floor = ""
        if part in least:
            operations, moved, shortest = least[part]
            floor = (
                f"; needed: {operations / 1e12:.2f} TFLOP, {moved / 1e9:.0f} GB, "
                f"{shortest / cores:.1f} s"
            )
        share = of_part / (cores * seconds)
        table.append(
            {
                "what": part,
                "measured": f"{of_part / cores:.1f} s of both cores, {share:.0%}{floor}",
                "wanted": "",
            }
        )
    for at, text in timeline.stages:
        print(f"{at:6.1f} s  {text}", file=sys.stderr)
    return table


if __name__ == "__main__":
    for row in rows():
        print(row)
