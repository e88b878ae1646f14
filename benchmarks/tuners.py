"""Our search against Ray Tune's ASHA and Optuna's TPE, at an equal number of steps trained.

Ours trains a study to its end: 64 (mnist-fc: 16) trials of a Sobol sequence under dominated
stopping, S steps in all. Each of the others may train S steps too, on the same workload, budget and
target; its trials stop at the target or the budget, and what counts is the least steps to target
that it has found.

- ASHA: Ray Tune's scheduler with its reduction factor of four, first rung at a 64th of the budget,
  asked a trial at a time; configurations are the rows of the same Sobol sequence, as many as it
  gets to.
- TPE: Optuna's sampler as it comes, asked and told a trial at a time; a trial that does not reach
  the target is told as its budget.
- TPE, stopped at its best: the same, but that a trial ends once it has run as many steps as the
  best so far has taken.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

SEEDS = (0, 1, 2)
ROWS = 2048
"""Rows of the Sobol sequence from which ASHA chooses."""
WORKLOADS: dict[str, tuple[str, list[str]]] = {
    "digits-mlp": (
        "digits",
        ["grid.batch_size=[8, 32, 128, 512]", "grid.optimizer=[momentum]", "trials=64"],
    ),
    "mnist-fc": (
        "mnist-fc",
        [
            "grid.batch_size=[128, 512]",
            "grid.optimizer=[momentum]",
            "grid.widths=[[64]]",
            "search={}",
            "extend=0",
            "budget=2 epochs + 500 steps",
            "target=validation_error < 0.05",
            "evaluation_ratio=1.1",
            "trials=16",
        ],
    ),
}
"""An experiment file, and the changes to it."""

LeastAndTotalSteps = tuple[int, int]
"""The least steps to target, and the steps trained."""


def plans(name: str, seed: int) -> list[Any]:
    """A workload's studies, with more rows than anything here gets to."""
    from experiments.config.compile import load

    file, settings = WORKLOADS[name]
    return load(file, [*settings, f"seed={seed}", f"trials={ROWS // 4}"]).plans()


def ours(name: str, seed: int) -> dict[int, LeastAndTotalSteps]:
    """The result of our sweep and its steps trained, by batch size."""
    from experiments.config.compile import load
    from experiments.execution.sweep import sweep
    from results import open as open_results

    file, settings = WORKLOADS[name]
    with tempfile.TemporaryDirectory() as folder:
        of = load(file, [*settings, f"seed={seed}"])
        sweep(of, results=folder, address="none")
        trials = open_results(folder).trials
    return {
        int(study.batch_size.iloc[0]): (
            int(study.steps_to_target.min()),
            int(study.steps_run.sum()),
        )
        for _, study in trials.groupby("batch_size")
    }


def evaluations(study: Any, trial: Any) -> Iterator[tuple[int, float, int | None, bool]]:
    """A trial alone: at each evaluation its step, error, steps to target, whether it ends."""
    from experiments.plan import Outcome, Pack
    from experiments.training.pack_training import Training

    free = replace(study, keep=None)
    metric, error = study.targets[-1].metric, 1.0
    for events in Training(Pack(id="one", study=free, trials=(trial,), engine="module")).run():
        for event in events:
            if isinstance(event, Outcome):
                yield event.steps_run, error, event.steps_to_target, True
            else:
                error = event.metrics[metric]
                if len(events) == 1:
                    yield event.step, error, None, False


def tpe(plan: Any, seed: int, steps: int, *, stops: bool = False) -> int | None:
    """The least steps to target that Optuna's TPE finds in so many."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    best: int | None = None
    trained = index = 0
    while trained < steps:
        suggestion = search.ask()
        point = {
            name: dimension.value(suggestion.suggest_float(name, 0, 1))
            for name, dimension in plan.space.items()
        }
        trial = plan.made(plan.resolved(point), index, index=index)
        reported, at = plan.study.budget_steps, 0
        for at, _, hit, _ in evaluations(plan.study, trial):
            if trained + at > steps:
                break
            if hit is not None:
                reported, best = hit, min(hit, best or hit)
            elif stops and best is not None and at >= best:
                break
        trained += at
        index += 1
        search.tell(suggestion, reported)
    return best


def asha(plan: Any, seed: int, steps: int) -> int | None:
    """The least steps to target found in so many by the rows of the plan's table, which Ray Tune's
    ASHA scheduler stops."""
    from ray.tune.schedulers import ASHAScheduler

    del seed  # the rows contain it
    budget = plan.study.budget_steps
    scheduler = ASHAScheduler(
        time_attr="steps",
        metric="error",
        mode="min",
        max_t=budget,
        grace_period=max(1, budget // 64),
        reduction_factor=4,
    )
    best: int | None = None
    trained = 0
    for trial in plan.trials(0, plan.max_rows):
        controller: Any = None  # ASHA does not use it
        runner: Any = SimpleNamespace(trial_id=trial.id)
        scheduler.on_trial_add(controller, runner)
        at = 0
        for at, error, hit, ends in evaluations(plan.study, trial):
            if trained + at > steps:
                return best
            if hit is not None:
                best = min(hit, best or hit)
            result = {"steps": at, "error": error, "training_iteration": at}
            if ends:
                scheduler.on_trial_complete(controller, runner, result)
            elif scheduler.on_trial_result(controller, runner, result) == ASHAScheduler.STOP:
                break
        trained += at
    raise SystemExit(f"{plan.max_rows} rows are too few for {steps:,} steps of ASHA")


OTHERS: dict[str, Callable[[Any, int, int], int | None]] = {
    "ASHA": asha,
    "TPE": tpe,
    "TPE, stopped at its best": partial(tpe, stops=True),
}


def compare(name: str, seeds: Sequence[int]) -> dict[tuple[int, str], list[float]]:
    """The steps of each other method over those of ours, per seed, by batch size and name. If a
    method has found no trial that reaches the target, its budget is used.
    """
    ratios: dict[tuple[int, str], list[float]] = {}
    for seed in seeds:
        base = ours(name, seed)
        for plan in plans(name, seed):
            size = plan.study.batch_size
            least, steps = base[size]
            for other, find in OTHERS.items():
                their_steps = find(plan, seed, steps) or plan.study.budget_steps
                ratios.setdefault((size, other), []).append(their_steps / least)
                print(name, seed, size, f"{steps} steps: {least}", other, their_steps, flush=True)
    return ratios


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def rows() -> list[dict[str, object]]:
    """A row a batch size, and one a workload, for the table in docs/."""
    import torch

    torch.set_num_threads(1)  # these models are small
    rows: list[dict[str, object]] = []
    for name in WORKLOADS:
        ratios = compare(name, SEEDS)
        for size in sorted({size for size, _ in ratios}):
            said = [f"{o} {mean(ratios[size, o]):.2f}×" for o in OTHERS]
            what = f"{name}, batch size {size}: least steps to target over ours"
            rows.append({"what": what, "measured": ", ".join(said)})
        for other in OTHERS:
            every = [values for (_, o), values in ratios.items() if o == other]
            by_seed = [mean(values) for values in zip(*every, strict=True)]
            text = f"{mean(by_seed):.2f}× [{min(by_seed):.2f}, {max(by_seed):.2f}]"
            what = f"{name}, all batch sizes, over the seeds: {other}"
            rows.append({"what": what, "measured": text})
    return [{"wanted": "", **row} for row in rows]
