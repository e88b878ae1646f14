"""A combination of the grid at one of its batch sizes: budget, ramp, and what identifies it.

What is wrong at a batch size is said by the owner of the rule (the budget, a schedule, a ramp, a
rule of metaparameters), and gets the line of the file here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import workloads
from experiments import identity, techniques
from experiments.amounts import TOKENS, SizeInUnit, in_examples, with_full
from experiments.batch_sizes import BatchSizes
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.config.yaml_lines import Path
from experiments.optimizers.groups import infers_output
from experiments.programs.command import ACCUMULATE, per_device
from experiments.training import evaluation_grid
from results.counts import count
from workloads.user_code.program import Program

_MOST_STEPS = 10**12
_MOST_EVALUATIONS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A combination at a batch size."""

    file: ExperimentFile
    combination: Combination
    batch_size: int
    """Examples of the first step."""
    train_size: int | None
    """Examples of the training set; ``None`` if it has no end."""
    source: str | None = None
    """Hash of the workload's code that identities hold instead of the present one."""

    def with_combination(self, combination: Combination) -> Sized:
        """Another combination at the same batch size."""
        return replace(self, combination=combination)

    @functools.cached_property
    def schedule_steps(self) -> int:
        """The budget, in steps of the first batch size.

        Raises:
            ExperimentError: it is less than a step or too many, makes too many evaluations, or is
                over one pass where data are not to be repeated.
        """
        file, size, train = self.file, self.batch_size, self.train_size
        tokens = self.combination.workload.tokens_per_example
        with file.places.errors_at(("budget",), named=True):
            steps = file.parsed_budget.in_steps(size, train, tokens)
        message = f"budget {file.budget} is {count(steps, 'step')} at batch size {size}"
        if steps < 1:
            message = f"budget {file.budget} is less than one step at batch size {size}"
            raise file.error(("budget",), message, "add steps: 50 epochs + 2000 steps")
        if steps > _MOST_STEPS:
            raise file.error(("budget",), message, f"at most {_MOST_STEPS:,}")
        if not file.repeat_data and train is not None and steps > train // size:
            message += f", and one pass over the training set ({count(train, 'example')}) is "
            hint = "budget: 1 epoch, or repeat_data: true"
            raise file.error(("budget",), f"{message}{train // size:,}", hint)
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

    @functools.cached_property
    def ramp(self) -> BatchSizes | None:
        """The batch size at each step, where it grows.

        Raises:
            ExperimentError: a ramp that the study cannot have; with its place.
        """
        each, schedule = self.combination, self.combination.schedule
        if each.ramp is None:
            return None
        fixed = {n: v for n, v in each.search.fixed.items() if n in schedule.arguments}
        with self.file.places.errors_at(each.paths["ramp"]):
            return each.ramp.resolve(
                self.batch_size,
                self.schedule_steps,
                examples=self.train_size,
                schedule=schedule,
                arguments=schedule.resolve(
                    fixed, self.schedule_steps, self.batch_size, each.workload.tokens_per_example
                ),
                tuned=[name for name in each.search.space if name in schedule.arguments],
            )

    @property
    def budget_steps(self) -> int:
        """The steps that a trial may train."""
        return (self.ramp and self.ramp.budget_steps) or self.schedule_steps

    def check(self) -> None:
        """Lengths in tokens, and the rule, must have a value at the batch size.

        Raises:
            ExperimentError: one has none; with its place.
        """
        each, schedule = self.combination, self.combination.schedule
        search, tokens = each.search, each.workload.tokens_per_example
        if isinstance(each.workload, Program):
            self._check_devices(each.workload)
        for name in sorted(schedule.amounts.keys() & {*search.space, *search.fixed}):
            with self.file.places.errors_at(each.paths[name]):
                schedule.amount_of_step(name, self.batch_size, tokens)
        if search.rule is not None:
            with self.file.places.errors_at(each.paths["rule"]):
                search.rule.check_size(self.batch_size, tokens)

    def _check_devices(self, program: Program) -> None:
        """The batch size is a whole number of forward passes of a program's devices."""
        given = {**program.values, **self.combination.search.fixed}
        tuned = self.combination.search.space.get(ACCUMULATE)
        with self.file.places.errors_at(self.file.sizes_path):
            for value in tuned.levels(2) if tuned else [given.get(ACCUMULATE, 1)]:
                per_device(program, self.batch_size, {**given, ACCUMULATE: value})

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What the id of its study hashes."""
        each, base, ramp = self.combination, self.file.base, self.ramp
        workload = workloads.identity(each.workload)
        untuned = {n: v for n, v in workload["fields"].items() if n not in each.search.space}
        workload = {**workload, "fields": untuned}
        if isinstance(each.workload, Program) and "budget" in each.workload.names:
            workload["budget_steps"] = self.budget_steps  # its schedule may depend on it
        if self.source is not None and "source" in workload:
            workload["source"] = self.source
        technique = identity.technique_identity(each.technique, base)
        if ramp is not None:  # its shares are of the budget, which identities do not hold
            technique["ramp"] = {
                "phases": list(zip(ramp.starts, ramp.sizes, strict=True)),
                "replaces_decay": ramp.replaces_decay,
            }
            if ramp.learning_rate != "none":
                technique["ramp"]["learning_rate"] = ramp.learning_rate
        if techniques.load(each.technique, base).uses_budget:
            technique["budget_steps"] = self.budget_steps
        return identity.study_identity(
            workload=workload,
            optimizer={
                **identity.optimizer_identity(each.optimizer, base),
                # Such trials once trained it as a hidden matrix.
                **({"output": "last"} if infers_output(each.optimizer, each.workload) else {}),
            },
            schedule=identity.schedule_identity(each.schedule, base, each.given),
            technique=technique,
            batch_size=self.batch_size,
            evaluation_ratio=self.file.ratio,
            repeat_data=self.file.repeat_data,
            replicate=each.replicate,
        )

    @property
    def id(self) -> str:
        """The id of its study."""
        return identity.study_id(self.identity)


def batch_sizes(
    file: ExperimentFile, combination: Combination, train_size: int | None
) -> Sequence[int]:
    """The batch sizes of a combination, ascending.

    Args:
        train_size: as of ``Sized``.

    Raises:
        ExperimentError: one is over the training set; as ``_in_examples``.
    """
    with file.places.errors_at(("grid", "batch_size")):
        return with_full(_in_examples(file, combination), train_size)


def _in_examples(file: ExperimentFile, combination: Combination) -> list[int | str]:
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
            the sizes; as ``_in_examples``.
    """
    sizes, workload = _in_examples(file, combination), combination.workload
    space = combination.search.space
    if (rule := combination.search.rule) is not None:
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
    for name in workload.fields.keys() & space.keys():
        for value in space[name].levels(2):
            other = workloads.load(file.spec, {**combination.fields, name: value}, file.base)
            if other.tokens_per_example != workload.tokens_per_example:
                message = (
                    f"the tokens of a {workload.example_unit} depend on {name}, which is tuned"
                )
                raise file.error(path, message, f"put {name} into the grid, or count in examples")
