"""A fixed sample of the demo: this project's sweep against Ray Tune with one trial a configuration.

3 optimizers × 4 batch sizes × 12 trials, the same trials (metaparameters and seeds) on both sides,
within a trial the same stops: target, budget, divergence. The work between trials is compared:
packs, stacking, dominated stopping here; there, one trainable a trial with the module engine in it,
in a fresh worker each (Ray Tune as it comes) or in reused actors. A row with dominated stopping off
shows its part. Each side is a process of its own; its clock starts when a local Ray is up and stops
when all trials have ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

SAMPLE = ["grid.batch_size=[1, 8, 128, 1024]", "trials=12"]  # evenly over the demo's range
CPUS = 2

Minima = dict[str, int]


def _plans(*more: str) -> Any:
    from experiments.config.compile import load

    return load("digits", [*SAMPLE, *more]).plans()


def _label(study: Any) -> str:
    return f"{study.optimizer}/{study.batch_size}"


def ours(*more: str) -> Minima:
    """Steps to target of each study's best trial, by this project's sweep."""
    from experiments.config.compile import load
    from experiments.execution.sweep import sweep
    from results import open as open_results

    with tempfile.TemporaryDirectory() as folder:
        sweep(load("digits", [*SAMPLE, *more]), results=folder, address="auto")
        trials = open_results(folder).trials
    best = trials.groupby(["optimizer", "batch_size"]).steps_to_target.min().dropna()
    return {f"{o}/{b}": int(steps) for (o, b), steps in zip(best.index, best, strict=True)}


def tune(reuse_actors: bool) -> Minima:
    """The same by Ray Tune: a grid over all trials, one model each."""
    from ray import tune as raytune

    plans = _plans()
    jobs = [(plan.study, trial) for plan in plans for trial in plan.trials(0, 12)]

    def trainable(config: dict[str, Any]) -> None:
        from experiments.plan import Outcome, Pack
        from experiments.training.pack_training import Training

        study, trial = jobs[config["job"]]
        training = Training(Pack(id=trial.id, study=study, trials=(trial,), engine="module"))
        for events in training.run():
            for event in events:
                if isinstance(event, Outcome):
                    raytune.report({"steps": event.steps_to_target or -1})

    with tempfile.TemporaryDirectory() as folder:
        tuner = raytune.Tuner(
            raytune.with_resources(trainable, {"cpu": 1}),
            param_space={"job": raytune.grid_search(list(range(len(jobs))))},
            tune_config=raytune.TuneConfig(reuse_actors=reuse_actors),
            run_config=raytune.RunConfig(storage_path=folder, verbose=0),
        )
        grid = tuner.fit()
    minima: Minima = {}
    for result in (grid[number] for number in range(len(grid))):
        config, metrics = result.config or {}, result.metrics or {}
        study, _ = jobs[config["job"]]
        steps = metrics["steps"]
        if steps > 0:
            minima[_label(study)] = min(steps, minima.get(_label(study), steps))
    return minima


SIDES: dict[str, Callable[[], Minima]] = {
    "ours": ours,
    "ours, module engine": lambda: ours("engine=module"),
    "ours, dominated stopping off": lambda: ours("keep=off"),
    "Ray Tune, reused actors": lambda: tune(True),
    "Ray Tune as it comes": lambda: tune(False),
}


def timed(side: str) -> tuple[float, Minima]:
    """Wall seconds and minima of one side, on a Ray of its own."""
    import ray

    ray.init(
        num_cpus=CPUS, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1"
    )
    began = time.perf_counter()
    minima = SIDES[side]()
    seconds = time.perf_counter() - began
    ray.shutdown()
    return seconds, minima


def measure(side: str) -> tuple[float, Minima]:
    """``timed`` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sweeps", side],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    seconds, minima = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, minima


def rows() -> list[dict[str, object]]:
    """One row a comparison, for the table in docs/."""
    measured = {}
    for side in SIDES:
        measured[side] = measure(side)
        print(f"{side}: {measured[side][0]:.1f} s", flush=True)
    base = measured["ours"][0]
    table: list[dict[str, object]] = [
        {
            "what": f"{side}, 144 trials of the demo",
            "measured": f"{seconds:.1f} s, {seconds / base:.1f}× ours",
            "wanted": {"Ray Tune as it comes": "≥ 8×", "Ray Tune, reused actors": "≥ 3×"}.get(
                side, ""
            ),
        }
        for side, (seconds, _) in measured.items()
    ]
    equal = measured["ours, module engine"][1] == measured["Ray Tune as it comes"][1]
    table.append(
        {
            "what": "minima of the 12 studies, ours pinned to the module engine against Ray Tune",
            "measured": "equal" if equal else "differ",
            "wanted": "equal",
        }
    )
    return table


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(timed(sys.argv[1])))
    else:
        print(json.dumps(rows(), indent=2, ensure_ascii=False))
