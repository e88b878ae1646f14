"""What a technique is: a swept factor of the training algorithm, which changes how a model trains.

A technique defines some of these hooks. Several techniques of one study are composed: each hook
runs over all of them in ascending ``order``, and by name where two have the same.

| hook | when | what it gets and returns |
|---|---|---|
| ``prepare`` | once a study on a worker, before models are made | the study, its data; the technique with what it has loaded |
| ``model`` | once, when a model is made | the model; the model that is trained |
| ``parameter_groups`` | once, when an optimizer is made | options of the optimizer for trained parameters |
| ``batch`` | in each training step, before the forward pass | the (micro-)batch; the same |
| ``loss`` | after the forward pass | one loss an example; the same |
| ``gradient`` | before the update, once for the global batch | the gradients; those of the update |
| ``after_step`` | after the update | the weights; the weights to go on from |
| ``evaluated`` | at each evaluation | the weights; those that are measured |
| ``communication`` | once, when a model is made | how the data ranks sum its gradient |

| order | technique |
|---|---|
| 100 | ``fine_tune``: a model begins with the weights of a file, whatever else is done to it |
| 200 | ``freeze``: names of parameters are those of the workload's model |
| 300 | ``lora``: freezes what it adapts |
| 350 | ``layer_rates``: layers are those of the model that is trained |
| 400 | ``compress``: what the ranks send, before any hook has the gradient of the global batch |
| 500 | unless the class says otherwise |
| 800 | ``clip``: the update gets a gradient whose norm is bounded, whatever ran before |
| 900 | ``ema``: averages the weights that a step ends with |

Hooks are written for one model. The stacked engine applies them to all models at once by
``torch.func.vmap``: there, values of tensors decide no Python branch, and ``.item()`` is not
called. A technique that cannot keep to that says ``stacks = False``, and its studies are trained by
the module engine.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, dataclass_transform

import torch
import torch.distributed as dist
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from experiments.errors import ExperimentError, nearest
from experiments.plan import Layout, Study, Value
from results.optimizers import class_name
from workloads import Batch, Workload
from workloads.user_code.data_files import located

_BEFORE_THE_GRADIENT = ("prepare", "model", "parameter_groups", "batch", "loss")
"""Hooks that the models of a stack share."""
Tensors = Mapping[str, Tensor]
"""Parameters of one model, or what belongs to them, by name."""
State = dict[str, Any]
"""Tensors of one model by name, in any nesting."""
Arguments = Value | Mapping[str, Value]
"""As a file writes them: the first argument's value, or several by name."""


class Preparation(Protocol):
    """What ``Technique.prepare`` gets."""

    @property
    def study(self) -> Study:
        """The study, as this worker trains it."""

    @property
    def workload(self) -> Workload:
        """The workload, as it is where no field is tuned."""

    @property
    def splits(self) -> Mapping[str, Any]:
        """Its splits (``experiments.training.splits.Split``): ``fetch(indices, training=False)``
        is the batch of these examples."""

    @property
    def device(self) -> torch.device:
        """Where models are trained."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of their weights."""


class Communication(abc.ABC):
    """A communication hook of ``torch.nn.parallel.DistributedDataParallel`` for one model, which
    sums gradients over the data ranks otherwise than exactly."""

    technique: str
    """The technique that makes it."""

    @abc.abstractmethod
    def join(self, group: dist.ProcessGroup | None) -> None:
        """Take part in a group of data ranks; ``None``: all."""

    @abc.abstractmethod
    def hook(
        self, group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        """The sum of a bucket of gradients over the ranks, once it is there."""

    def state(self) -> dict[str, Any]:
        """What the hook keeps from step to step, of all ranks, equal on every rank."""
        return {}

    def load(self, state: dict[str, Any]) -> None:  # noqa: B027 - a hook
        """Continue from ``state``; from an empty one as before the first step."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Technique:
    """Derive from it, and define hooks; an annotated attribute is an argument.

    A subclass is a frozen keyword-only dataclass by itself. The first sentence of its docstring is
    what ``batchscale list techniques`` says of it.
    """

    name: ClassVar[str]
    """What loads it: a packaged name, or ``file.py:Class``."""
    order: ClassVar[int] = 500
    """Its position among the techniques of a study: hooks of smaller numbers run first."""
    stacks: ClassVar[bool] = True
    """Whether the hooks may run on many models at once, by ``torch.func.vmap``."""
    why_not_stacked: ClassVar[str] = "its hooks are written for one model at a time"
    """The reason, where ``stacks`` is false."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def data_files(self) -> Iterable[str]:
        """Paths of files that arguments name, each absolute or relative to the experiment file.

        A hash of their contents takes the place of the paths in a trial's identity; workers get
        copies of them, and ``prepare`` opens ``local_file(path, context)``.
        """
        return ()

    def local_file(self, path: str, context: Preparation) -> Path:
        """Where this process reads one of ``data_files``."""
        return self.located(path, context.study.workload.base)

    def located(self, path: str, base: str | None) -> Path:
        """The file of ``path``, which starts from the folder ``base`` unless it is absolute.

        Raises:
            WorkloadError: there is no such file.
        """
        return located(path, Path(base or "."), f"technique {self.label}: file {{}}")

    def prepare(self, context: Preparation) -> Technique:  # noqa: ARG002
        """The technique with what it has loaded: ``self.with_arguments({"_weights": loaded})``.

        Tensors belong on ``context.device``. In the other hooks they are constants: no hook changes
        them, and all models share them.
        """
        return self

    def model(self, model: nn.Module) -> nn.Module:
        """The model that is trained; random numbers come from torch's generator, seeded.

        Parameters that must not move get ``requires_grad_(False)``.
        """
        return model

    def parameter_groups(
        self,
        named_parameters: Tensors,  # noqa: ARG002
    ) -> Mapping[str, Mapping[str, float]]:
        """Options of trained parameters: pattern of names -> metaparameters of the optimizer.

        They override those of the optimizer and the workload; a ``learning_rate_factor`` multiplies
        theirs.
        """
        return {}

    def batch(self, batch: Batch) -> Batch:
        """The training batch as the model gets it, in the device's memory.

        It may be a part of the global batch: an example must not depend on the others. Random
        numbers follow the example, as those of dropout do.
        """
        return batch

    def loss(self, loss: Tensor, model: nn.Module, output: Any, batch: Batch) -> Tensor:  # noqa: ARG002
        """One loss an example, of which training minimizes the mean."""
        return loss

    def start(self, weights: Tensors) -> State:  # noqa: ARG002
        """The technique's state of a model, before its first step."""
        return {}

    def gradient(
        self,
        gradients: Tensors,
        weights: Tensors,  # noqa: ARG002
        state: State,  # noqa: ARG002
        step: Tensor,  # noqa: ARG002
    ) -> Tensors:
        """The gradients of the update, from those of the global batch.

        Args:
            weights: trained parameters.
            state: of this technique and model; changes of its entries are kept.
            step: updates made before this one, a scalar.
        """
        return gradients

    def after_step(self, weights: Tensors, state: State, step: Tensor) -> Tensors:  # noqa: ARG002
        """The weights to go on from, after the update. ``step``: updates made before it."""
        return weights

    def evaluated(self, weights: Tensors, state: State) -> Tensors:  # noqa: ARG002
        """The weights that evaluations measure, in the place of the trained ones."""
        return weights

    def communication(self) -> Communication | None:
        """How the data ranks of one model sum its gradient; ``None``: exactly."""
        return None

    def in_layout(self, layout: Layout) -> Technique:  # noqa: ARG002
        """The technique where models train in ``layout``.

        Raises:
            ExperimentError: it cannot be used there.
        """
        return self

    @property
    def label(self) -> str:
        """Its name in tables, figures and messages; the class of a user's file."""
        return class_name(self.name)

    @property
    def written(self) -> Arguments:
        """The arguments in their shortest form: what identity and results hold.

        The first argument always, others where they are not the default; the value alone where
        that is the first one's; ``True`` where there is no argument.
        """
        fields = dataclasses.fields(self)
        values = {
            field.name: getattr(self, field.name)
            for i, field in enumerate(fields)
            if i == 0 or getattr(self, field.name) != field.default
        }
        if not values:
            return True
        return values if len(values) > 1 else next(iter(values.values()))

    def defines(self, hook: str) -> bool:
        """Whether the class defines this hook."""
        return getattr(type(self), hook) is not getattr(Technique, hook)

    def with_arguments(self, values: Mapping[str, Any]) -> Technique:
        """The same with other values, unchecked: a scalar tensor may replace a number."""
        changed = copy.copy(self)
        vars(changed).update(values)
        return changed


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
            raise ExperimentError(
                f"technique {label} has no argument {name!r}",
                hint=nearest(name, fields) if fields else "it has none",
            )
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING
        if required and field.default_factory is dataclasses.MISSING and name not in values:
            raise ExperimentError(
                f"technique {label} needs a value of {name}",
                hint=f"for example: technique: {{{label}: {{{name}: 0.1}}}}",
            )
    try:
        made: Technique = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "its arguments"
        reason = first["msg"].removeprefix("Value error, ")
        raise ExperimentError(
            f"technique {label}: {name} cannot be {values.get(name, values)!r}: {reason}"
        ) from None
    return made.with_arguments({"name": spec})


class Techniques:
    """The techniques of a study, or of one of its trials, in their order."""

    def __init__(self, parts: Mapping[str, Technique] | None = None) -> None:
        """``parts``: techniques by their names in the experiment."""
        named = (parts or {}).items()
        self.parts = dict(sorted(named, key=lambda item: (item[1].order, item[0])))
        self.tuned: dict[str, dict[str, Value]] = {}
        """Arguments that a search tunes, by technique, with their values in a trial."""
        self.prepared: object | None = None
        """What tells these techniques from others that have loaded other tensors."""

    def __iter__(self) -> Any:
        return iter(self.parts.values())

    def define(self, *hooks: str) -> bool:
        """Whether a technique has one of these hooks."""
        return any(part.defines(hook) for part in self for hook in hooks)

    def prepare(self, context: Preparation) -> Techniques:
        """The same, with what they have loaded."""
        if not self.define("prepare"):
            return self
        made = Techniques({name: part.prepare(context) for name, part in self.parts.items()})
        made.prepared = object()
        return made

    def model(self, model: nn.Module) -> nn.Module:
        """The model that is trained.

        Raises:
            ExperimentError: it has no parameter that is.
        """
        for part in self:
            model = part.model(model)
        if self.define("model") and not any(p.requires_grad for p in model.parameters()):
            labels = ", ".join(part.label for part in self if part.defines("model"))
            raise ExperimentError(
                f"technique {labels}: no parameter is left that is trained",
                hint="freeze fewer of them",
            )
        return model

    def loss(self, workload: Any, model: nn.Module, batch: Batch) -> Tensor:
        """One loss an example of a training batch: forward pass included."""
        for part in self:
            batch = part.batch(batch)
        output = workload.forward(model, batch)
        loss: Tensor = workload.loss(output, batch)
        for part in self:
            loss = part.loss(loss, model, output, batch)
        return loss

    def start(self, weights: Tensors) -> State:
        """The state of all techniques, by their names."""
        return {name: part.start(weights) for name, part in self.parts.items()}

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Tensor) -> Tensors:
        """The gradients of the update; sets entries of ``state``."""
        for name, part in self.parts.items():
            gradients = part.gradient(gradients, weights, state[name], step)
        return gradients

    def after_step(self, weights: Tensors, state: State, step: Tensor) -> Tensors:
        """The weights to go on from; sets entries of ``state``."""
        for name, part in self.parts.items():
            weights = part.after_step(weights, state[name], step)
        return weights

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        """The weights that are measured."""
        for name, part in self.parts.items():
            weights = part.evaluated(weights, state[name])
        return weights

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

    def with_arguments(self, values: Mapping[str, Mapping[str, Any]]) -> Techniques:
        """The same with other values of some arguments, by technique and argument."""
        if not values:
            return self
        changed = Techniques(
            {name: part.with_arguments(values.get(name, {})) for name, part in self.parts.items()}
        )
        changed.prepared = self.prepared
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

    def unstackable(self, metaparameters: Mapping[str, Value]) -> str | None:
        """Why models that train with them cannot be stacked; ``None`` if they can."""
        for part in self:
            if not part.stacks:
                return f"technique {part.label}: {part.why_not_stacked}"
        for name in self.of_trial(metaparameters).tuned:
            if any(self.parts[name].defines(hook) for hook in _BEFORE_THE_GRADIENT):
                return f"technique {self.parts[name].label}: one of its arguments is tuned"
        return None
