"""What a technique is: a swept factor of the training algorithm, which changes how a model trains.

A technique defines some of the hooks below (``docs/techniques.md`` says when each is called).
Several techniques of one study are composed: each hook runs over all of them in ascending
``order``, and by name where two have the same.

Of ``forward`` and ``criterion`` the first technique is the outermost: it calls the next ones. At
most one technique of a study defines ``select``, and one ``perturbed``. A hook that no technique
defines is not called, and costs nothing.

| order | technique |
|---|---|
| 100 | ``fine_tune``: a model begins with the weights of a file, whatever else is done to it |
| 200 | ``freeze``: names of parameters are those of the workload's model |
| 200 | ``dropout``: the model is changed from the inside |
| 210 | ``stochastic_depth``: likewise |
| 250 | ``quantize``: likewise |
| 300 | ``lora``: freezes what it adapts |
| 400 | ``compress``: what the ranks send, before any hook has the gradient of the global batch |
| 440 | ``weight_decay``: a part of the update; ``coupled``, it has 850, behind clipping |
| 450 | ``distill``: its teacher sees what the student sees, and the loss of the others |
| 450 | ``lookahead``: moves the weights before they are masked |
| 500 | unless the class says otherwise |
| 550 | ``label_smoothing``: inside of all those, the workload's loss itself is smoothed |
| 600 | ``prune``: no technique behind it sees gradients or weights of what is pruned |
| 700 | ``gradient_noise``: the noise is clipped, too |
| 800 | ``clip``: the update gets a gradient whose norm is bounded, whatever ran before |
| 900 | ``ema``: averages the weights that a step ends with |
| 900 | ``swa``: likewise |

Hooks are written for one model. The stacked engine applies them to all models at once by
``torch.func.vmap``: there, values of tensors decide no Python branch, and ``.item()`` is not
called. A technique that cannot keep to that says ``stacks = False``, and its studies are trained by
the module engine. ``augment`` runs outside of all that, for each trial by itself.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, dataclass_transform

import torch
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.plan import Layout, Study
from experiments.search.space import Value
from experiments.techniques.communication import Communication
from results.optimizers import class_name
from workloads import Batch, Workload
from workloads.user_code.data_files import located

Tensors = Mapping[str, Tensor]
"""Parameters of one model, or what belongs to them, by name."""
State = dict[str, Any]
"""Tensors of one model by name, in any nesting."""
Compute = Callable[[Any, Batch], Any]
"""A forward pass (model, batch → output), or a loss (output, batch → one an example)."""
Arguments = Value | Mapping[str, Value]
"""As a file writes them: the first argument's value, or several by name."""


class Step(NamedTuple):
    """What a technique is told of a step of one model: scalars, on the device of its weights."""

    number: Tensor
    """Updates made before it, int64."""
    learning_rate: Tensor
    """The trial's in this step, schedule included, in the type of the weights."""
    seed: Tensor
    """Of the trial and the technique, int64."""
    due: bool = True
    """Whether ``Technique.is_due`` is true of any model that is trained in this step."""


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
    def fixed_examples(self) -> bool:
        """Whether the training split's examples are trained on as they are stored."""

    @property
    def device(self) -> torch.device:
        """Where models are trained."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of their weights."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Technique:
    """Derive from it, and define hooks; an annotated attribute is an argument.

    A subclass is a frozen keyword-only dataclass by itself. The first sentence of its docstring is
    what ``batchscale list techniques`` says of it.
    """

    name: ClassVar[str]
    """What loads it: a packaged name, or ``file.py:Class``."""
    example: ClassVar[str] = "0.1"
    """A value of its first argument as a file writes it, for hints; where that has no default."""
    order: ClassVar[int] = 500
    """Its position among the techniques of a study: hooks of smaller numbers run first."""
    stacks: ClassVar[bool] = True
    """Whether the hooks may run on many models at once, by ``torch.func.vmap``."""
    why_not_stacked: ClassVar[str] = "its hooks are written for one model at a time"
    """The reason, where ``stacks`` is false."""
    of_stored: ClassVar[bool] = False
    """Whether ``augment`` gets the examples as they are stored (images of bytes), before the
    workload's ``transform``; otherwise after it."""
    in_evaluation: ClassVar[bool] = False
    """Whether ``forward`` is in the place of the forward passes of evaluations too."""
    of_device: ClassVar[bool] = False
    """Whether a device may lack what the hooks compute with: then they raise ``DeviceError``."""
    needs_whole: ClassVar[str | None] = None
    """What it needs whole, so that only data parallelism may train with it: ``weights``."""
    uses_budget: ClassVar[bool] = False
    """Whether ``budget_steps`` matters: then the budget is part of a trial's identity."""
    budget_steps: ClassVar[int | None] = None
    """Steps of the study's budget, where ``uses_budget``; set before any hook is called."""
    budget_shares: ClassVar[tuple[str, ...]] = ()
    """Arguments that are shares of the budget: a file may also say ``0.5 of target``."""
    follows_average: ClassVar[bool] = False
    """Whether ``evaluated`` changes the weights that it gets, perhaps an optimizer's or another
    technique's average, rather than replacing them."""
    excludes: ClassVar[Mapping[str, str]] = {}
    """Labels of techniques that cannot be beside it, each with the reason."""
    example_tensors: ClassVar[tuple[Tensor, ...]] = ()
    """Tensors with a row for each example of the training split, set by ``prepare``, where the
    examples are fixed; in the hooks of a forward pass, the rows of the batch's examples."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in inspect.get_annotations(cls):
            if callable(getattr(Technique, name, None)):
                raise ExperimentError(
                    f"technique {cls.__name__}: an argument cannot be called {name}, which is a "
                    "hook",
                    hint="rename the argument",
                )
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

    def prepare(self, context: Preparation) -> Technique:
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

    def parameter_groups(self, named_parameters: Tensors) -> Mapping[str, Mapping[str, float]]:
        """Options of trained parameters: pattern of names -> metaparameters of the optimizer.

        They override those of the optimizer and the workload; a ``learning_rate_factor`` multiplies
        theirs.
        """
        return {}

    def augment(self, batch: Batch, step: int) -> Batch:
        """The global batch of a step as it is trained on: as many examples, in the same order.

        Every data rank has all of it, so that an example may be mixed with any other; tensors that
        are appended to the batch reach ``forward`` and ``criterion``. Random numbers come from
        torch's generator, seeded by the trial, the technique and the step: they are the same in
        both engines, however the batch is divided later.

        Args:
            batch: see ``of_stored``; in the device's memory.
            step: updates made before this one.
        """
        return batch

    def before_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        """The weights from which a step begins."""
        return weights

    def batch(self, batch: Batch) -> Batch:
        """The training batch as the model gets it, in the device's memory.

        It may be a part of the global batch: an example must not depend on the others. Random
        numbers follow the example, as those of dropout do.
        """
        return batch

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        """The output of a forward pass of training; ``compute(model, batch)`` is the next one
        inside, at last the workload's."""
        return compute(model, batch)

    def criterion(self, compute: Compute, output: Any, batch: Batch) -> Tensor:
        """One loss an example, ``(examples,)``; ``compute(output, batch)`` is the next one inside,
        at last the workload's."""
        loss: Tensor = compute(output, batch)
        return loss

    def loss(self, loss: Tensor, model: nn.Module, output: Any, batch: Batch) -> Tensor:
        """One loss an example, of which training minimizes the mean."""
        return loss

    def start(self, weights: Tensors) -> State:
        """The technique's state of a model, before its first step."""
        return {}

    def select(self, losses: Tensor, step: Step) -> Tensor:
        """The weight of each example in the loss of a step, whose sum is usually 1.

        Args:
            losses: of all examples of the global batch, ``(examples,)``, from a forward pass of
                training without a gradient, with the random numbers of the one that follows.
        """
        return torch.full_like(losses, 1 / len(losses))

    def observe(
        self, half: Tensors, whole: Tensors, sizes: tuple[int, int], state: State, step: Step
    ) -> None:
        """See the gradient of half of the global batch beside that of all of it, means of so many
        examples (``sizes``), where ``is_due``; changes of entries of ``state`` are kept."""

    def recorded(self, state: State) -> Tensors:
        """Scalars that evaluations record beside their metrics, as ``train_`` and their names."""
        return {}

    def perturbed(self, weights: Tensors, gradients: Tensors, state: State, step: Step) -> Tensors:
        """The weights at which the gradient of the same global batch is taken a second time, with
        the same random numbers. The second gradient replaces the first, and updates ``weights``.

        Args: those of ``gradient``.
        """
        return weights

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Step) -> Tensors:
        """The gradients of the update, from those of the global batch.

        Args:
            weights: trained parameters.
            state: of this technique and model; changes of its entries are kept.
        """
        return gradients

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        """The weights to go on from, after the update."""
        return weights

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        """The weights that evaluations measure, in the place of the trained ones."""
        return weights

    def metrics(
        self,
        metrics: Mapping[str, Any],
        compute: Compute,
        workload: Any,
        model: nn.Module,
        batch: Batch,
    ) -> Mapping[str, Any]:
        """What is measured of a batch, from the workload's ``metrics`` of it; those of further
        forward passes, by ``compute(model, batch)``, under other names."""
        return metrics

    @property
    def acts_from(self) -> int:
        """Updates made before it acts: a trial that ends by then is one without the technique."""
        return 0

    def is_due(self, step: int) -> bool:
        """Whether it does, in the step after ``step`` others, what costs much and is rarely done.

        ``Step.due`` says in a hook whether that is so of any model. A stack has models at different
        steps, so that the hook asks ``Step.number`` besides.
        """
        return True

    def check(self, workload: Any, model: nn.Module, batch: Batch) -> None:
        """Called once before training, outside of all transforms.

        Raises:
            ExperimentError: it cannot be used with this workload.
        """

    def communication(self) -> Communication | None:
        """How the data ranks of one model sum its gradient; ``None``: exactly."""
        return None

    def optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer of a model that trains by itself, before its first step."""
        return optimizer

    def in_layout(self, layout: Layout) -> Technique:
        """The technique where models train in ``layout``.

        Raises:
            ExperimentError: it cannot be used there.
        """
        if self.needs_whole and (layout.name is not None or layout.dimensions):
            raise ExperimentError(
                f"technique {self.label} needs whole {self.needs_whole}, which this layout divides",
                hint="data parallelism alone: workers: N",
            )
        return self

    @property
    def micro_batches(self) -> int | None:
        """In how many forward passes a global batch is cut; ``None``: as memory and layout say."""
        return None

    @property
    def label(self) -> str:
        """Its name in tables, figures and messages; the class of a user's file."""
        return class_name(self.name)

    @property
    def written(self) -> Arguments:
        """The arguments in their shortest form: what identity and results hold.

        The first argument unless it is ``None``, others where they are not the default; the value
        alone where that is the first one's; ``True`` where there is no argument.
        """
        fields = dataclasses.fields(self)
        values = {field.name: getattr(self, field.name) for field in fields}
        stated = {
            field.name: values[field.name]
            for i, field in enumerate(fields)
            if values[field.name] != field.default or (i == 0 and values[field.name] is not None)
        }
        if not stated:
            return True
        first = fields[0].name
        return stated[first] if stated.keys() == {first} else stated

    def defines(self, hook: str) -> bool:
        """Whether the class defines this hook."""
        return getattr(type(self), hook) is not getattr(Technique, hook)

    def with_arguments(self, values: Mapping[str, Any]) -> Self:
        """The same with other values, unchecked: a scalar tensor may replace a number."""
        changed = copy.copy(self)
        vars(changed).update(values)
        return changed
