"""Checks before anything is trained: targets and their metric, a user's optimizers, schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch

from experiments import schedules
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.config.yaml_lines import Path
from experiments.errors import ExperimentError, nearest
from experiments.optimizers import Optimizer
from experiments.optimizers.routed import Routed
from experiments.optimizers.trial_run import OptimizerRun, is_users
from experiments.schedules import Schedule
from experiments.training.splits import Split
from results.targets.target import Target
from workloads import Workload, WorkloadError
from workloads.checks import check_metrics, check_target, target_metric

_STEPS = 100
"""Steps of a small budget; a schedule must give a factor at each of them."""


def check_directions(file: ExperimentFile, targets: Sequence[Target], workload: Workload) -> None:
    """Each target must name a split and have the direction in which its metric is better.

    Raises:
        ExperimentError: a target does not.
    """
    _, workload_metric = target_metric(workload)
    for target in targets:
        path = file.target_path(target)
        try:
            check_target(str(target), "the experiment")
        except WorkloadError as error:
            raise file.error(path, str(error), error.hint) from None
        metric = target.metric.partition("_")[2]
        if metric == workload_metric and target.lower_is_better != ("<" in workload.target):
            message = f"target {target} has another direction than the workload's target"
            raise file.error(path, f"{message} ({workload.target})", "reverse the sign")


def check_metric(
    file: ExperimentFile, target: Target, workload: Workload, data: Mapping[str, Any]
) -> None:
    """The metric of the targets must exist.

    The workload's metrics are computed of one example of the split, with a new model. This is left
    out for the metric of a packaged workload's own target.

    Args:
        target: any of the experiment's, all of one metric.
        data: the workload's splits, checked.

    Raises:
        ExperimentError: no such split or metric.
        WorkloadError: what the workload returns are no metrics.
    """
    path = file.target_path(target)
    split, _, metric = target.metric.partition("_")
    if split not in data:
        message = f"target {target.metric}: workload {workload.name} has no split {split!r}"
        raise file.error(path, message, f"it has {', '.join(data)}")
    if workload.version and (split, metric) == target_metric(workload):
        return
    example = Split(data[split], workload, torch.device("cpu"), torch.float32)
    batch = example.fetch(torch.tensor([0]), training=False)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        # Seed the model: if it fails for some weights only, the check must not depend on chance.
        torch.manual_seed(0)
        metrics = workload.metrics(workload.forward(workload.model().eval(), batch), batch)
    check_metrics(metrics, 1, workload)
    if metric not in metrics:
        message = f"target {target.metric}: workload {workload.name} has no metric {metric!r}"
        hint = nearest(target.metric, [f"{split}_{name}" for name in metrics])
        raise file.error(path, message, hint)


def check_training_algorithms(file: ExperimentFile, combinations: Sequence[Combination]) -> None:
    """Each optimizer and schedule of a user's file, and each optimizer of some parameters alone,
    must work.

    An optimizer takes three steps on a new model, with metaparameters from the middle of its space:
    it must take the parameters of the workload's model, and go on from its saved state as if it had
    not been stopped. A schedule must have its arguments and give a factor at every step, with
    metaparameters from the middle and from both ends of its space.

    Raises:
        ExperimentError: it does not. What a user's own code raises passes unchanged.
    """
    for key, check in (("optimizer", _check_optimizer), ("schedule", _check_schedule)):
        names = list(dict.fromkeys(getattr(c, key).name for c in combinations))
        checked: set[tuple[str, str]] = set()
        for combination in combinations:
            owner = getattr(combination, key)
            pair = owner.name, combination.optimizer.name  # the values differ between optimizers
            if pair in checked or not _needs_check(owner):
                continue
            checked.add(pair)
            try:
                check(combination)
            except ExperimentError as error:
                path: Path = (*file.path_of(key), names.index(owner.name))
                raise file.error(path, str(error), error.hint) from None


def _needs_check(owner: Optimizer | Schedule) -> bool:
    if isinstance(owner, Schedule):
        return owner.name not in schedules.names()
    return isinstance(owner, Routed) or is_users(owner)


def _check_optimizer(combination: Combination) -> None:
    optimizer = combination.optimizer
    values = optimizer.arguments_in(combination.values(0.5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = combination.workload.model()
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    whole = OptimizerRun(optimizer, values, named, combination.workload)
    for _ in range(2):
        whole.step()
    resumed = OptimizerRun(optimizer, values, named, combination.workload)
    resumed.save_and_load(whole)
    for run in (whole, resumed):
        run.step()
    if whole.differs(resumed.parameters):
        raise ExperimentError(
            f"optimizer {optimizer.name} continues differently after its state is saved and "
            "loaded, so that a stopped trial could not be resumed",
            hint="keep its state in self.state and in the parameter groups, or define state_dict "
            "and "
            "load_state_dict",
        )


def _check_schedule(combination: Combination) -> None:
    schedule = combination.schedule
    for u in (0.5, 0.0, 1.0):
        arguments = {n: v for n, v in combination.values(u).items() if n in schedule.arguments}
        resolved = schedule.resolve(arguments, _STEPS)
        for name in schedule.required:
            if name not in resolved:
                short = schedule.counterpart(name) or name
                raise ExperimentError(
                    f"schedule {schedule.label} needs a value of {short}",
                    hint=f"in an experiment: search: {{{short}: …}}; or a space, or a default in "
                    "its shape",
                )
        for step in range(_STEPS):
            factor: Any = schedule.factor(step, resolved)
            if not isinstance(factor, Real) or not 0 <= float(factor) < math.inf:
                values = ", ".join(f"{name} {value}" for name, value in sorted(resolved.items()))
                raise ExperimentError(
                    f"schedule {schedule.label}: its shape gives {factor!r} at step {step} of "
                    f"{_STEPS} with {values or 'no arguments'}",
                    hint="return a number from 0 on: what the learning rate is multiplied by",
                )
