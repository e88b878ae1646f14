"""A hundred thousand trials in one experiment: drawing their table, and a resume with all done.

60 studies of 1,667 trials. What a sweep would have recorded is written by the store itself, in
files of a pack each, and then compacted as a complete sweep's are; nothing is trained.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.memory import peak_gigabytes

EXPERIMENT = {
    "name": "scale",
    "workload": "digits-mlp",
    "grid": {
        "batch_size": "1..1024, full",
        "optimizer": ["sgd", "momentum", "nesterov", "adam", "adamw"],
    },
    "keep": 4,
}
STUDIES = 60


def experiment() -> Any:
    """About 100,000 trials."""
    from experiments.config.compile import load

    trials = -(-100_000 // STUDIES)
    return load({**EXPERIMENT, "trials": trials})


def _rows(studies: Any) -> Iterator[list[dict[str, Any]]]:
    """Rows of the trials table, a list a pack of 64: one trial in five reaches the target."""
    from experiments.plan import Outcome
    from experiments.records.rows import trial_row

    for each in studies:
        study = each.study
        trials = each.plan.trials(0, study.trials)
        for start in range(0, len(trials), 64):
            pack = []
            for trial in trials[start : start + 64]:
                hit = 10 + trial.seed % 400 if trial.seed % 5 == 0 else None
                outcome = Outcome(
                    trial=trial.id,
                    status="COMPLETE",
                    stop_reason="target" if hit else "budget",
                    steps_run=hit or study.budget_steps,
                    examples_run=(hit or study.budget_steps) * study.batch_size,
                    steps_to_target=hit,
                    last_miss=hit - 1 if hit else None,
                )
                row = trial_row(
                    each.columns,
                    study,
                    trial,
                    outcome,
                    pack=f"{study.id}-{start}",
                    pack_models=64,
                    engine="stacked",
                    device="cpu",
                    world_size=1,
                )
                pack.append(row)
            yield pack


def fill(root: str) -> None:
    """Write what a sweep would have recorded."""
    from experiments.records.planned import planned
    from results.store import Store

    studies, store = planned(experiment()), Store(root)
    store.add_studies([each.row for each in studies])
    for pack in _rows(studies):
        store.commit("scale", measurements=[], trials=pack)


def compact(root: str) -> None:
    """Merge the files, as a complete sweep does."""
    from results.store import Store

    Store(root).compact("scale")


def table() -> float:
    """Seconds to draw and identify every trial of the experiment."""
    plans = experiment().plans()
    began = time.perf_counter()
    for plan in plans:
        plan.trials(0, plan.study.trials)
    return time.perf_counter() - began


def resume(root: str) -> float:
    """Seconds of a sweep that finds everything done."""
    from experiments.execution.sweep import sweep

    began = time.perf_counter()
    did = sweep(experiment(), results=root, address="none")
    if did.trained or not did.complete:
        raise SystemExit(f"the resume trained {did.trained} trials")
    return time.perf_counter() - began


def measure(what: str, *arguments: str) -> tuple[float, float]:
    """Seconds and peak GB of ``what`` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", what, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, peak = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, peak


def rows() -> list[dict[str, object]]:
    """One row a figure, for the table in docs/."""
    with tempfile.TemporaryDirectory() as root:
        drawn, _ = measure("table")
        measure("fill", root)
        first, peak = measure("resume", root)
        measure("compact", root)
        again, _ = measure("resume", root)
    return [
        {
            "what": "100,000 trials in one experiment: drawing the table",
            "measured": f"{drawn:.1f} s",
            "wanted": "< 10 s",
        },
        {
            "what": "100,000 trials done: a resume, files of a pack each / compacted",
            "measured": f"{first:.1f} s / {again:.1f} s",
            "wanted": "< 20 s",
        },
        {
            "what": "100,000 trials done: the driver's peak memory",
            "measured": f"{peak:.2f} GB",
            "wanted": "< 1 GB",
        },
    ]


def main(what: str, *arguments: str) -> None:
    """One measurement, as JSON: seconds, peak GB."""
    began = time.perf_counter()
    measures = {"table": table, "fill": fill, "compact": compact, "resume": resume}
    result = measures[what](*arguments)  # type: ignore[operator]
    seconds = time.perf_counter() - began if result is None else result
    peak = peak_gigabytes()
    print(json.dumps([seconds, peak]))


if __name__ == "__main__":
    main(*sys.argv[1:])
