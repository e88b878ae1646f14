"""How cost grows: that of a sweep with its trials, that of an analysis with its measurements.

A sweep trains 1 to 10,000 trials of digits-mlp, of 20 steps each with two evaluations, which end
with the last step, in one process and one thread, the table of trials and the dataset included.
An analysis computes the steps to a target of a workload's 12 batch sizes from 10^4 to 10^8 made-up
measurements, 250 a trial, and locates the regimes with their intervals. Each is a process of its
own; its clock starts when all is imported. Processor seconds count all its threads; they are what
the slopes are of, since another process that shares the machine does not change them much.

    python -m benchmarks growth

writes docs/img/benchmarks-growth.png too. The slope is that of the last decade in logs:
below, what costs the same at any size hides the growth.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.memory import peak_gigabytes

PICTURE = Path(__file__).parent.parent / "docs" / "img" / "benchmarks-growth.png"

TRIALS = (1, 10, 100, 1_000, 10_000)
MEASUREMENTS = (10**4, 10**5, 10**6, 10**7, 10**8)

EACH = 250
"""Measurements of a trial."""
SIZES = tuple(2**k for k in range(12))
TARGET = "validation_error < 0.1"
_PART = 4_000
"""Trials a commit, a million measurements."""


class Cost(NamedTuple):
    """Of one size."""

    size: int
    seconds: float
    processor: float
    memory: float
    """The process's peak, in GB."""


def train(count: int) -> None:
    """Train so many trials."""
    from experiments.config.compile import load
    from experiments.execution.sweep import sweep

    trained = {
        "name": "growth",
        "workload": "digits-mlp",
        "grid": {"batch_size": [64], "optimizer": ["momentum"]},
        "trials": count,
        "budget": "20 steps",
        "evaluation_ratio": 20.0,
        "keep": "off",
        "target": "validation_error < 0.2",
    }
    with tempfile.TemporaryDirectory() as folder:
        did = sweep(load(trained), results=folder, address="none")
    if did.trained < count:
        raise SystemExit(f"{did.trained} of {count} trials were trained")


def fill(root: str, count: int) -> None:
    """Write a dataset of so many measurements: the steps to target of a batch size's trials are
    S_min (1 + B_crit / B) and up to e times as many, and a trial's error halves on the way."""
    import pyarrow as pa

    from results.store import Store

    store, rng = Store(root), np.random.default_rng(0)
    trials = max(len(SIZES), count // EACH)
    group = {"workload": "made up", "dataset": "made up", "optimizer": "sgd"}
    studies = [{**group, "batch_size": size, "study": f"{size}"} for size in SIZES]
    store.add_studies([{"experiment": "growth", "targets": [TARGET], **row} for row in studies])
    for start in range(0, trials, _PART):
        numbers = range(start, min(start + _PART, trials))
        of = [studies[number % len(SIZES)] for number in numbers]
        luck = rng.exponential(0.3, len(of)) + rng.normal(0, 0.02, len(of))
        best = np.array([200 * (1 + 64 / row["batch_size"]) for row in of]) * np.exp(luck)
        evaluations = max(1, count // trials)
        # The trials of a study are evaluated at the same steps, as a sweep's are.
        least = np.array([200 * (1 + 64 / row["batch_size"]) for row in of])
        steps = np.rint(least[:, None] * np.linspace(0.05, 4.0, evaluations)).astype(np.int64)
        error = 0.1 * 2.0 ** (1 - steps / best[:, None])
        codes = pa.array(np.repeat(np.arange(len(of), dtype=np.int32), evaluations))
        columns = {
            "trial": pa.DictionaryArray.from_arrays(codes, [f"t{number}" for number in numbers]),
            "study": pa.DictionaryArray.from_arrays(codes, [row["study"] for row in of]),
            "step": pa.array(steps.ravel()),
            "validation_error": pa.array(error.ravel()),
        }
        rows = [
            {
                **row, "trial": f"t{number}", "index": number // len(SIZES), "role": "search",
                "status": "COMPLETE", "stop_reason": "budget", "steps_run": int(last),
                "metaparameters": {},
            }
            for number, row, last in zip(numbers, of, steps[:, -1], strict=True)
        ]  # fmt: skip
        store.commit_columns("growth", measurements=pa.table(columns), trials=rows)


def analyse(root: str) -> None:
    """Steps to target from the measurements, and the regimes with their intervals."""
    import results
    from batchscale.run import Run

    (curve,) = Run(results.open(root).with_target(TARGET)).regimes()
    if curve["critical_batch_size"]["value"] is None:
        raise SystemExit("no critical batch size was found")


def measure(what: str, count: int, *arguments: str) -> Cost:
    """The cost of ``what`` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", what, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    cost = Cost(count, *json.loads(done.stdout.strip().splitlines()[-1]))
    print(f"{what}: {cost}", flush=True)
    return cost


def slope(costs: Sequence[Cost]) -> float:
    """Of processor seconds against size, both in logs, between the last two sizes."""
    before, last = costs[-2:]
    grown = np.log(last.processor / before.processor)
    return float(grown / np.log(last.size / before.size))


def draw(trained: Sequence[Cost], analysed: Sequence[Cost], file: Path = PICTURE) -> None:
    """Both lines with their slopes, as a PNG."""
    from matplotlib import pyplot as plt

    from analysis.figures.drawing.page import Page
    from analysis.figures.drawing.style import PALETTE, grid

    page = Page.of("two-columns")
    with page.context():
        figure, axes = plt.subplots(1, 2, figsize=(7.0, 2.7), layout="constrained")
        for ax, costs, name in (
            (axes[0], trained, "trials trained, 20 steps each"),
            (axes[1], analysed, "measurements analysed"),
        ):
            sizes = np.array([each.size for each in costs], dtype=float)
            spent = np.array([each.processor for each in costs])
            ax.set_xscale("log")
            ax.set_yscale("log")
            grid(ax)
            ax.plot(sizes, spent, marker="o", color=PALETTE[0].colour, linestyle="none", zorder=3)
            label = f"slope {slope(costs):.2f}"
            ax.plot(sizes[-2:], spent[-2:], color=PALETTE[0].colour, label=label, zorder=2)
            ax.set_xlabel(name)
            ax.set_ylabel("processor seconds")
            ax.set_xticks(sizes)
            decades = np.log10([spent.min(), spent.max()])
            ax.set_ylim(10 ** np.floor(decades[0]), 10 ** np.ceil(decades[1]))
            ax.minorticks_off()
            ax.legend(loc="upper left")
        figure.savefig(file, dpi=200)
        plt.close(figure)


def rows() -> list[dict[str, object]]:
    """One row a size, for the table in docs/; and the figure."""
    trained = [measure("train", count, str(count)) for count in TRIALS]
    analysed = []
    for count in MEASUREMENTS:
        with tempfile.TemporaryDirectory() as root:
            measure("fill", count, root, str(count))
            analysed.append(measure("analyse", count, root))
    draw(trained, analysed)
    return table(trained, analysed)


def table(trained: Sequence[Cost], analysed: Sequence[Cost]) -> list[dict[str, object]]:
    """The rows of both lines, each with its slope."""
    made: list[dict[str, object]] = []
    for name, costs in (("trials trained", trained), ("measurements analysed", analysed)):
        made += [
            {
                "what": f"{each.size:,} {name}",
                "measured": f"{each.processor:.1f} s of processors, {each.seconds:.1f} s; "
                f"{each.memory:.2f} GB",
                "wanted": "",
            }
            for each in costs
        ]
        over = f"{costs[-2].size:,} to {costs[-1].size:,}"
        made.append(
            {
                "what": f"slope of processor seconds in logs, {over} {name}",
                "measured": f"{slope(costs):.2f}",
                "wanted": "≤ 1.05",
            }
        )
    return made


def main(what: str, *arguments: str) -> None:
    """One measurement, as JSON: seconds, processor seconds, peak GB."""
    if what == "train":
        import experiments.execution.sweep  # noqa: F401
        import workloads.digits  # noqa: F401
    else:
        import results  # noqa: F401
    before, began = time.process_time(), time.perf_counter()
    measures: dict[str, Any] = {"train": train, "fill": fill, "analyse": analyse}
    measures[what](*(int(each) if each.isdigit() else each for each in arguments))
    seconds, processor = time.perf_counter() - began, time.process_time() - before
    peak = peak_gigabytes()
    print(json.dumps([seconds, processor, peak]))


if __name__ == "__main__":
    main(*sys.argv[1:])
