"""The techniques of a study: made from what an experiment file says, composed in their order."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from experiments.errors import ExperimentError, nearest
from experiments.factors.target_share import HINT, shares_of_target
from experiments.search.space import Value
from experiments.seeds import derive
from experiments.techniques.base import (
    Arguments,
    Communication,
    Compute,
    Preparation,
    State,
    Step,
    Technique,
    Tensors,
)
from results.optimizers import class_name
from workloads import Batch


def make_technique(kind: type[Technique], spec: str, arguments: Arguments) -> Technique:
    """A technique with the arguments that an experiment file gives, checked.

    ``spec``: what loads it.

    Raises:
        ExperimentError: an unknown argument, a missing one, or a value that it cannot have.
    """
    label = class_name(spec)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if isinstance(arguments, Mapping):
        values = dict(arguments)
    elif arguments is True:
        values = {}
    elif not fields:
        raise ExperimentError(
            f"technique {label} has no argument, and cannot be {arguments!r}",
            hint=f"technique: {{{label}: true}}",
        )
    else:
        values = {next(iter(fields)): arguments}
    for name in values:
        if name not in fields:
            hint = nearest(name, fields) if fields else "it has none"
            raise ExperimentError(f"technique {label} has no argument {name!r}", hint=hint)
    for name, field in fields.items():
        if field.default is field.default_factory is dataclasses.MISSING and name not in values:
            raise ExperimentError(
                f"technique {label} needs a value of {name}",
                hint=f"for example: technique: {{{label}: {kind.example}}}",
            )
    of_target = shares_of_target(values, kind.budget_shares)
    try:
        made: Technique = TypeAdapter(kind).validate_python({**values, **of_target})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "its arguments"
        reason = first["msg"].removeprefix("Value error, ")
        raise ExperimentError(
            f"technique {label}: {name} cannot be {values.get(name, values)!r}: {reason}",
            hint=HINT if name in kind.budget_shares else None,
        ) from None
    return made.with_arguments({"name": spec, **of_target})


_TRACED = ("prepare", "model", "parameter_groups", "batch", "forward", "criterion", "loss")
"""Hooks of which all models of a stack have one."""
_SINGLE = ("select", "perturbed")
"""Hooks that at most one technique of a study defines."""


class Techniques:
    """The techniques of a study, or of one of its trials, in their order."""

    def __init__(self, parts: Mapping[str, Technique] | None = None) -> None:
        """``parts``: techniques by their names in the experiment.

        Raises:
            ExperimentError: two of them cannot be together.
        """
        named = (parts or {}).items()
        self.parts = dict(sorted(named, key=lambda item: (item[1].order, item[0])))
        self.tuned: dict[str, dict[str, Value]] = {}
        """Arguments that a search tunes, by technique, with their values in a trial."""
        self.prepared: object | None = None
        """What tells these techniques from others that have loaded other tensors."""
        for hook in _SINGLE:
            labels = [part.label for part in self if part.defines(hook)]
            if len(labels) > 1:
                raise ExperimentError(
                    f"techniques {' and '.join(labels)} both define {hook}", hint="keep one"
                )
        for part in self:
            if part.defines("observe") and self.define("select"):
                raise ExperimentError(
                    f"technique {part.label} needs batches whose examples are not selected",
                    hint="list it and the technique that selects one by one in the grid",
                )
            for other in self:
                if other is not part and other.label in part.excludes:
                    reason = part.excludes[other.label]
                    raise ExperimentError(
                        f"techniques {part.label} and {other.label} cannot be together: {reason}",
                        hint="list them one by one in the grid",
                    )

    def __iter__(self) -> Any:
        return iter(self.parts.values())

    def define(self, *hooks: str) -> bool:
        """Whether a technique has one of these hooks."""
        return any(part.defines(hook) for part in self for hook in hooks)

    def prepare(self, context: Preparation) -> Techniques:
        """The same, with what they have loaded."""
        made = Techniques({name: part.prepare(context) for name, part in self.parts.items()})
        made.prepared = object()
        for part in made:
            if part.example_tensors and not context.fixed_examples:
                raise ExperimentError(
                    f"technique {part.label} has values for each training example, and examples "
                    "are streamed or augmented",
                    hint="compute them in each forward pass where fixed_examples is false",
                )
        return made

    @property
    def example_tensors(self) -> tuple[Tensor, ...]:
        """Those of all techniques, in their order: each training batch ends with its rows."""
        return tuple(tensor for part in self for tensor in part.example_tensors)

    def _with_rows(self, batch: Batch) -> tuple[Batch, list[Technique]]:
        """A training batch without rows of ``example_tensors``, and the techniques with them."""
        parts = list(self.parts.values())
        if not (count := len(self.example_tensors)):
            return batch, parts
        rows = iter(batch[-count:])
        return batch[:-count], [
            part.with_arguments({"example_tensors": tuple(islice(rows, len(part.example_tensors)))})
            for part in parts
        ]

    def model(self, model: nn.Module) -> nn.Module:
        """The model that is trained.

        Raises:
            ExperimentError: it has no parameter that is.
        """
        trained = any(p.requires_grad for p in model.parameters())
        for part in self:
            model = part.model(model)
        if trained and not any(p.requires_grad for p in model.parameters()):
            labels = ", ".join(part.label for part in self if part.defines("model"))
            raise ExperimentError(
                f"technique {labels}: no parameter is left that is trained",
                hint="freeze fewer of them",
            )
        return model

    def augmentation(self, seed: int) -> Augmentation | None:
        """What changes the global batch of a step, of the trial with this seed; ``None``: nothing
        does."""
        parts = [part for part in self if part.defines("augment")]
        return Augmentation(parts, seed) if parts else None

    def loss(self, workload: Any, model: nn.Module, batch: Batch) -> Tensor:
        """One loss an example of a training batch: forward pass included."""
        batch, parts = self._with_rows(batch)
        for part in parts:
            batch = part.batch(batch)
        output = _composed(parts, "forward", workload.forward)(model, batch)
        loss: Tensor = _composed(parts, "criterion", workload.loss)(output, batch)
        for part in parts:
            loss = part.loss(loss, model, output, batch)
        return loss

    def output(self, workload: Any, model: nn.Module, batch: Batch) -> Any:
        """The model's output in an evaluation."""
        return self._in_evaluation(workload)(model, batch)

    def _in_evaluation(self, workload: Any) -> Compute:
        parts = [part for part in self if part.in_evaluation]
        return _composed(parts, "forward", workload.forward)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer that updates a model by itself."""
        for part in self:
            optimizer = part.optimizer(optimizer)
        return optimizer

    def start(self, weights: Tensors) -> State:
        """The state of all techniques, by their names."""
        return {name: part.start(weights) for name, part in self.parts.items()}

    def changed(
        self, hook: str, values: Tensors, *others: Tensors, state: State, steps: Mapping[str, Step]
    ) -> Tensors:
        """``values`` as ``before_step``, ``perturbed``, ``gradient`` or ``after_step`` of all
        techniques leave them; sets entries of ``state``. ``others``: what the hook gets besides."""
        for name, part in self.parts.items():
            values = getattr(part, hook)(values, *others, state[name], steps[name])
        return values

    def select(self, steps: Mapping[str, Step], losses: Tensor) -> Tensor:
        """The weight of each example of the global batch, by the technique that selects."""
        name, part = next(each for each in self.parts.items() if each[1].defines("select"))
        return part.select(losses, steps[name])

    def observe(
        self,
        half: Tensors,
        whole: Tensors,
        sizes: tuple[int, int],
        state: State,
        steps: Mapping[str, Step],
    ) -> None:
        """Let each technique see the gradient of half of a batch; sets entries of ``state``."""
        for name, part in self.parts.items():
            part.observe(half, whole, sizes, state[name], steps[name])

    def recorded(self, state: State) -> dict[str, Tensor]:
        """What evaluations record of all techniques."""
        return {
            n: v for name, part in self.parts.items() for n, v in part.recorded(state[name]).items()
        }

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        """The weights that are measured: averages first, then what changes them."""
        for name, part in sorted(self.parts.items(), key=lambda item: item[1].follows_average):
            weights = part.evaluated(weights, state[name])
        return weights

    def check(self, workload: Any, model: nn.Module, batch: Batch) -> None:
        """
        Raises:
            ExperimentError: a technique cannot be used with this workload.
        """
        for part in self:
            part.check(workload, model, batch)

    def metrics(
        self, metrics: Mapping[str, Any], workload: Any, model: nn.Module, batch: Batch
    ) -> Mapping[str, Any]:
        """What is recorded of an evaluated batch, from the workload's ``metrics`` of it."""
        compute = self._in_evaluation(workload)
        for part in self:
            metrics = part.metrics(metrics, compute, workload, model, batch)
        return metrics

    def due(self, steps: Sequence[int], rows: Sequence[Techniques]) -> dict[str, bool]:
        """Which techniques are due in any model of a stack: ``Technique.is_due``.

        ``steps``: those that the models of ``rows`` have taken.
        """
        due = dict.fromkeys(self.parts, True)
        for name, part in self.parts.items():
            if part.defines("is_due"):
                of_rows = [(row.parts[name], step) for row, step in zip(rows, steps, strict=True)]
                of_steps = [(part, step) for step in {*steps}]
                pairs = of_rows if name in self.tuned else of_steps
                due[name] = any(each.is_due(step) for each, step in pairs)
        return due

    def communication(self) -> Communication | None:
        """How the data ranks of one model sum its gradient; ``None``: exactly.

        Raises:
            ExperimentError: two techniques say it.
        """
        ways = [way for way in (part.communication() for part in self) if way is not None]
        if len(ways) > 1:
            names = " and ".join(way.technique for way in ways)
            raise ExperimentError(f"techniques {names} both sum gradients", hint="keep one")
        return ways[0] if ways else None

    @property
    def gradients_per_step(self) -> int | None:
        """How often a step takes the gradient of its global batch; ``None``: once."""
        return 2 if self.define("perturbed") else None

    @property
    def micro_batches(self) -> int | None:
        """In how many forward passes a global batch is cut; ``None``: as memory and layout say."""
        return max((part.micro_batches or 0 for part in self), default=0) or None

    @property
    def uses_budget(self) -> bool:
        """Whether the budget changes what a technique does."""
        return any(part.uses_budget for part in self)

    def with_budget(self, steps: int) -> Techniques:
        """The same with the steps of the budget, for techniques that use it."""
        using = [name for name, part in self.parts.items() if part.uses_budget]
        return self.with_arguments({name: {"budget_steps": steps} for name in using})

    def with_arguments(self, values: Mapping[str, Mapping[str, Any]]) -> Techniques:
        """The same with other values of some arguments, by technique and argument."""
        if not values:
            return self
        changed = copy.copy(self)
        changed.parts = {
            n: part.with_arguments(values.get(n, {})) for n, part in self.parts.items()
        }
        return changed

    def of_trial(self, metaparameters: Mapping[str, Value]) -> Techniques:
        """With the arguments that the search tunes: ``clip.norm`` is ``norm`` of ``clip``."""
        tuned = {}
        for name, part in self.parts.items():
            prefix = f"{part.label}."
            values = {
                k.removeprefix(prefix): v for k, v in metaparameters.items() if k.startswith(prefix)
            }
            if values:
                tuned[name] = values
        techniques = self.with_arguments(tuned)
        techniques.tuned = tuned
        return techniques

    def stacking_refusal(self, metaparameters: Mapping[str, Value]) -> str | None:
        """Why models that train with them cannot be stacked; ``None`` if they can."""
        for part in self:
            if not part.stacks:
                return f"technique {part.label}: {part.why_not_stacked}"
        for name in self.of_trial(metaparameters).tuned:
            if any(self.parts[name].defines(hook) for hook in _TRACED):
                return f"technique {self.parts[name].label}: one of its arguments is tuned"
        return None


class Augmentation:
    """What the techniques of a trial make of the global batch of a step."""

    def __init__(self, parts: Sequence[Technique], seed: int) -> None:
        """``parts``: the techniques that do, in their order; ``seed``: the trial's."""
        self.parts, self.seed = parts, seed

    def stored(self, batch: Batch, step: int) -> Batch:
        """The examples as they are stored, changed. Raises: as ``transformed``."""
        return self._changed([part for part in self.parts if part.of_stored], batch, step)

    def transformed(self, batch: Batch, step: int) -> Batch:
        """The examples after the workload's ``transform``, changed.

        Raises:
            ExperimentError: a technique changes how many examples there are.
        """
        return self._changed([part for part in self.parts if not part.of_stored], batch, step)

    def _changed(self, parts: Sequence[Technique], batch: Batch, step: int) -> Batch:
        for part in parts:
            examples, device = len(batch[0]), batch[0].device
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.manual_seed(derive(self.seed, "augment", part.label, step))
                batch = part.augment(batch, step)
            if any(len(x) != examples for x in batch):
                raise ExperimentError(
                    f"technique {part.label}: augment changes the number of examples from "
                    f"{examples} to {len(batch[0])}",
                    hint="return as many, in the same order",
                )
        return batch


def _composed(parts: Sequence[Technique], hook: str, compute: Compute) -> Compute:
    """``compute`` within the hooks of techniques, of which the first is the outermost."""
    for part in reversed(parts):
        if part.defines(hook):
            compute = partial(getattr(part, hook), compute)
    return compute
