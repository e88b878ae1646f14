"""Checks before anything is trained: targets and their metric, a user's optimizers, schedules,
lengths in tokens, batch sizes that grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch

import workloads
from experiments import schedules, techniques
from experiments.amounts import TOKENS
from experiments.batch_sizes import BatchSizes
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.config.sizes import SizeInUnit, in_examples
from experiments.config.yaml_lines import Path
from experiments.errors import ExperimentError
from experiments.optimizers import Optimizer
from experiments.optimizers.trial_run import OptimizerRun
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.schedules import Schedule
from experiments.training import evaluation_grid
from results.counts import count
from results.targets.target import Target
from workloads import Workload, WorkloadError
from workloads.checks import (
    check_model,
    check_target,
    target_metric,
)

_MOST_STEPS = 10**12
_MOST_EVALUATIONS = 1_000_000
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
        with file.places.errors_at(path, WorkloadError):
            check_target(str(target), "the experiment")
        metric = target.metric.partition("_")[2]
        if metric == workload_metric and target.lower_is_better != ("<" in workload.target):
            message = f"target {target} has another direction than the workload's target"
            raise file.error(path, f"{message} ({workload.target})", "reverse the sign")


def check_training_algorithms(file: ExperimentFile, combinations: Sequence[Combination]) -> None:
    """Each optimizer and schedule of a user's file, each optimizer that needs hidden matrices, and
    each of a user's workload with parameter groups must work; and at most one of a technique and
    the optimizer gives evaluations other weights than those that are trained.

    An optimizer takes three steps on a new model, with metaparameters from the middle of its space:
    it must take the parameters of the workload's model, and go on from its saved state as if it had
    not been stopped. A schedule must have its arguments and give a factor at every step, with
    metaparameters from the middle and from both ends of its space.

    Raises:
        ExperimentError: it does not. What a user's own code raises passes unchanged.
    """
    _check_averages(file, combinations)
    for key, check in (("optimizer", _check_optimizer), ("schedule", _check_schedule)):
        checked: set[tuple[str, str]] = set()
        for combination in combinations:
            owner = getattr(combination, key)
            pair = owner.name, combination.optimizer.name  # the values differ between optimizers
            if pair in checked or not _needs_check(owner, combination.workload):
                continue
            checked.add(pair)
            with file.places.errors_at(combination.paths[key]):
                check(combination)


def _check_averages(file: ExperimentFile, combinations: Sequence[Combination]) -> None:
    """Evaluations measure one average of the weights, the optimizer's or a technique's.

    Raises:
        ExperimentError: both have one: the technique would measure an average of the trained
            weights, not of the optimizer's.
    """
    for combination in combinations:
        optimizer = combination.optimizer
        averaging = [
            part.label
            for part in techniques.load(combination.technique, file.base)
            if part.defines("evaluated") and not part.follows_average
        ]
        if averaging and optimizer.averages:
            raise file.error(
                combination.paths["technique"],
                f"technique {averaging[0]} and optimizer {optimizer.label} both make evaluations "
                "measure other weights than those that are trained",
                f"leave {averaging[0]} out, or choose an optimizer that averages nothing, such as "
                "adamw",
            )


def _needs_check(owner: Optimizer | Schedule, workload: Workload) -> bool:
    if isinstance(owner, Schedule):
        return owner.name not in schedules.names()
    users = type(workload).parameter_groups is not Workload.parameter_groups
    of_users = isinstance(owner, UserOptimizer) or (users and workload.version is None)
    return owner.uses_hidden or of_users


def _check_optimizer(combination: Combination) -> None:
    optimizer = combination.optimizer
    values = optimizer.arguments_in(combination.values(0.5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = check_model(combination.workload.model(), combination.workload)
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
        resolved = schedule.resolve(arguments, _STEPS, batch_size=1, tokens_per_example=1)
        for name in schedule.required:
            if name not in resolved:
                short = next(iter(schedule.other_forms(name)), name)
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


def check_study(file: ExperimentFile, combination: Combination, batch_size: int) -> None:
    """The ghost batch, lengths in tokens, and the rule must suit a batch size and the workload.

    Raises:
        ExperimentError: one does not; with its place.
    """
    places, paths = file.places, combination.paths
    schedule, tokens = combination.schedule, combination.workload.tokens_per_example
    ghost = combination.technique.get("ghost_batch")
    with places.errors_at(file.path_of("ghost_batch")):
        if ghost is not None and batch_size % int(ghost):
            raise ExperimentError(
                f"ghost_batch {ghost} does not divide batch size {batch_size}",
                hint="set a divisor, or leave that batch size out",
            )
    for name in sorted(schedule.amounts.keys() & {*combination.space, *combination.fixed}):
        with places.errors_at(paths[name]):
            schedule.amount_of_step(name, batch_size, tokens)
    if combination.rule is not None:
        with places.errors_at(paths["rule"]):
            combination.rule.check_size(batch_size, tokens)


def ramp_of(
    file: ExperimentFile,
    combination: Combination,
    batch_size: int,
    budget_steps: int,
    train_size: int | None,
) -> BatchSizes | None:
    """The batch size at each step of a study, where it grows.

    Raises:
        ExperimentError: a ramp that the study cannot have; with its place.
    """
    if combination.ramp is None:
        return None
    schedule, tokens = combination.schedule, combination.workload.tokens_per_example
    fixed = {n: v for n, v in combination.fixed.items() if n in schedule.arguments}
    ghost = combination.technique.get("ghost_batch")
    with file.places.errors_at(combination.paths["ramp"]):
        if train_size is None:
            message = "ramp: the training set is read in sequence, or has no end"
            hint = "a batch size grows over a training set of known size alone"
            raise ExperimentError(message, hint=hint)
        return combination.ramp.resolve(
            batch_size,
            budget_steps,
            examples=train_size,
            ghost_batch=None if ghost is None else int(ghost),
            schedule=schedule,
            arguments=schedule.resolve(fixed, budget_steps, batch_size, tokens),
            tuned=[name for name in combination.space if name in schedule.arguments],
        )


def sizes_in_examples(file: ExperimentFile, combination: Combination) -> list[int | str]:
    """The batch sizes of the grid in examples of a combination's workload; ``full`` stays.

    Raises:
        ExperimentError: one in tokens is no whole number of examples, or examples have no tokens;
            one in sequences, and examples are none.
    """
    workload = combination.workload
    with file.places.errors_at(file.sizes_path, named=True):
        return in_examples(file.batch_sizes, workload.tokens_per_example, workload.example_unit)


def check_units(file: ExperimentFile, combination: Combination) -> None:
    """Amounts in tokens need a workload with a known number of them, the same in every trial.

    Raises:
        ExperimentError: it has none, or it depends on a tuned field; a rule's base is not among
            the sizes; as ``sizes_in_examples``.
    """
    sizes, workload = sizes_in_examples(file, combination), combination.workload
    if (rule := combination.rule) is not None:
        with file.places.errors_at(combination.paths["rule"]):
            rule.check_base(sizes)
    with file.places.errors_at(("budget",), named=True):
        file.parsed_budget.in_examples(workload.tokens_per_example)
    if file.parsed_budget.tokens:
        path: Path = ("budget",)
    elif any(isinstance(size, SizeInUnit) and size.unit == TOKENS for size in file.batch_sizes):
        path = file.sizes_path
    elif rule is not None and rule.in_tokens:
        path = combination.paths["rule"]
    else:
        return
    for name in workload.fields.keys() & combination.space.keys():
        for value in combination.space[name].levels(2):
            other = workloads.load(file.workload, {**combination.fields, name: value}, file.base)
            if other.tokens_per_example != workload.tokens_per_example:
                message = (
                    f"the tokens of a {workload.example_unit} depend on {name}, which is tuned"
                )
                raise file.error(path, message, f"put {name} into the grid, or count in examples")


def budget_in_steps(
    file: ExperimentFile, batch_size: int, train_size: int | None, workload: Workload
) -> int:
    """The budget of a study, in steps of its batch size.

    Args:
        train_size: examples of the training set; ``None`` if it has no end.

    Raises:
        ExperimentError: it is less than a step or too many, makes too many evaluations, or is
            over one pass where data are not to be repeated.
    """
    with file.places.errors_at(("budget",), named=True):
        steps = file.parsed_budget.in_steps(batch_size, train_size, workload.tokens_per_example)
    if steps < 1:
        message = f"budget {file.budget} is less than one step at batch size {batch_size}"
        raise file.error(("budget",), message, "add steps: 50 epochs + 2000 steps")
    if steps > _MOST_STEPS:
        message = f"budget {file.budget} is {count(steps, 'step')} at batch size {batch_size}"
        raise file.error(("budget",), message, f"at most {_MOST_STEPS:,}")
    _check_repetition(file, steps, batch_size, train_size)
    ratio = file.evaluation_ratio
    if (evaluations := evaluation_grid.count(ratio, steps)) > _MOST_EVALUATIONS:
        usual = evaluation_grid.count(1.05, steps)
        raise file.error(
            ("evaluation_ratio",),
            f"evaluation_ratio {ratio:.16g} makes about {evaluations:,.0f} evaluations of a "
            f"trial of {count(steps, 'step')}",
            f"at most {_MOST_EVALUATIONS:,}; 1.05 makes {usual:,.0f}",
        )
    return steps


def _check_repetition(
    file: ExperimentFile, steps: int, batch_size: int, train_size: int | None
) -> None:
    """Where data are not to be repeated, the budget is at most one pass."""
    if file.repeat_data or train_size is None or steps <= train_size // batch_size:
        return
    raise file.error(
        ("budget",),
        f"budget {file.budget} is {count(steps, 'step')} at batch size {batch_size}, and one "
        f"pass over the training set ({count(train_size, 'example')}) is "
        f"{train_size // batch_size:,}",
        "budget: 1 epoch, or repeat_data: true",
    )
