"""What an optimizer is to the engines: legal arguments, a default search space, and two forms.

The *module* form is a ``torch.optim.Optimizer`` over one model's parameters. The *stacked* form
updates many models at once: row ``i`` of every ``(models, parameters)`` tensor belongs to model
``i``, and every metaparameter is a column vector ``(models, 1)``.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from experiments.plan import Value
from experiments.search.domains import Domain
from results.optimizers import class_name

Space = Mapping[str, Any]
"""Metaparameter name -> a range as written in an experiment file, or a fixed value."""
Named = tuple[str, torch.nn.Parameter]
"""A parameter with its name in the model."""
Options = Mapping[str, float]
"""Options of one parameter: metaparameters, and perhaps ``RATE_FACTOR`` and ``HIDDEN``."""
RATE_FACTOR = "learning_rate_factor"
"""The option of a parameter by which its learning rate is multiplied."""
HIDDEN = "hidden"
"""The option of a parameter that is false (0) for embeddings and the output layer."""
ALIGNMENT = 16
"""Every parameter begins at a multiple of so many numbers in a row: 64 bytes of float32."""


_BLOCK = 2**18
"""Numbers of a block of an elementwise update: a few tensors of it fit into a core's cache."""
ROW = 2**15
"""From so many numbers in a row on, a call for each model costs less than passes over blocks."""


class ParameterSlice(NamedTuple):
    """Where the numbers of a trainable parameter are in a row of ``(models, size)``."""

    name: str
    start: int
    shape: torch.Size

    def view(self, rows: Tensor) -> Tensor:
        """``(models, *shape)`` of ``(models, size)``; shares its memory."""
        flat = rows[:, self.start : self.start + self.shape.numel()]
        return flat.view(len(rows), *self.shape)

    def of(self, values: Tensor) -> Tensor:
        """The numbers of the parameter in ``(models, size)``; a column ``(models, 1)`` as it is."""
        end = self.start + self.shape.numel()
        return values if values.shape[1] == 1 else values[:, self.start : end]

    def column(self, values: Tensor) -> Tensor:
        """A metaparameter of each model for this parameter, ``(models, 1)``."""
        return self.of(values)[:, :1]


class StackedUpdate(abc.ABC):
    """The state and the step of one optimizer over a stack of models.

    Only additions, multiplications, divisions, square roots and signs of whole tensors are used,
    one rounding each (no fused multiply-add): a model's bits then do not depend on its row or on
    how many rows there are. Norms of a parameter are sums along a row (``norm_of_rows``).
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        like: Tensor,
        parameters: Sequence[ParameterSlice] = (),
    ) -> None:
        """
        Args:
            values: metaparameters, float64, ``(models, 1)`` each; ``(models, size)`` where
                parameters have options of their own.
            like: the weights, ``(models, size)``.
            parameters: where each trainable parameter is in a row.
        """
        self.values = {name: v.to(like) for name, v in values.items()}
        self.parameters = parameters
        self.decays = "weight_decay" in values and bool(values["weight_decay"].any())
        self.state: dict[str, Tensor] = {}

    @abc.abstractmethod
    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        """Update ``weights`` in place; ``gradient`` may be overwritten."""

    def evaluated(self, weights: Tensor) -> Tensor | None:  # noqa: ARG002 - a hook
        """The weights that evaluations measure, a new tensor; ``None``: the trained ones."""
        return None

    def keep(self, rows: Tensor) -> None:
        """Drop every model but ``rows`` (int64 indices)."""
        self.values = {name: v[rows] for name, v in self.values.items()}
        self.state = {name: v[rows] for name, v in self.state.items()}

    def add(self, other: StackedUpdate) -> None:
        """Append the models of ``other``, which has the same optimizer."""
        self.values = {n: torch.cat([v, other.values[n]]) for n, v in self.values.items()}
        self.state = {n: torch.cat([v, other.state[n]]) for n, v in self.state.items()}
        self.decays = self.decays or other.decays


class ElementwiseUpdate(StackedUpdate):
    """An update that treats every number alike: done in blocks of columns that fit into a cache,
    or, where rows are long, by torch's kernels for one model (``update_row``)."""

    decoupled = True
    """Whether weights shrink, instead of adding the decay to the gradient."""
    _scratch: Tensor | None = None

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        if self._takes_rows(weights, learning_rate):
            self._step_rows(weights, gradient, learning_rate)
        else:
            self._step_blocks(weights, gradient, learning_rate)

    def _takes_rows(self, weights: Tensor, learning_rate: Tensor) -> bool:
        overridden = type(self).update_row is not ElementwiseUpdate.update_row
        if not overridden or not weights.is_cpu or weights.shape[1] < ROW:
            return False
        apart = {"weight_decay"} if self.decoupled or not self.decays else set()
        values = [v for name, v in self.values.items() if name not in apart]
        return all(v.shape[1] == 1 for v in (learning_rate, *values))

    def _step_rows(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        if self.decoupled and self.decays:
            for parameter in self.parameters:
                decay = parameter.column(self.values["weight_decay"])
                parameter.of(weights).mul_(1 - learning_rate * decay)
        values = {**self.values, **self.begin(learning_rate)}
        numbers = {n: v.flatten().tolist() for n, v in values.items() if v.shape[1] == 1}
        state = {name: v for name, v in self.state.items() if v.shape == weights.shape}
        for row in range(len(weights)):
            self.update_row(
                weights[row],
                gradient[row],
                {name: v[row] for name, v in state.items()},
                {name: v[row] for name, v in numbers.items()},
            )

    def update_row(
        self,
        weights: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],
        values: Mapping[str, float],
    ) -> None:
        """The step of one model, by kernels that take several operations in one pass; decoupled
        weight decay has been applied.

        Such a kernel rounds elsewhere than ``update``, and in every row alike.

        Args:
            weights: ``(size,)``, as ``gradient`` and what is in ``state``.
            values: metaparameters, and those of ``begin``.
        """
        raise NotImplementedError

    def _step_blocks(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        models, size = weights.shape
        width = min(size, max(_BLOCK // models // ALIGNMENT * ALIGNMENT, ALIGNMENT))
        if self._scratch is None or self._scratch.shape != (models, width):
            self._scratch = weights.new_empty(models, width)
        scratch = self._scratch
        values = {**self.values, **self.begin(learning_rate)}
        state = {name: v for name, v in self.state.items() if v.shape == weights.shape}
        for start in range(0, size, width):
            block = slice(start, min(start + width, size))
            self.update(
                weights[:, block],
                gradient[:, block],
                scratch[:, : block.stop - start],
                {name: v[:, block] for name, v in state.items()},
                {n: v if v.shape[1] == 1 else v[:, block] for n, v in values.items()},
            )

    def shrinkage(self, learning_rate: Tensor) -> dict[str, Tensor]:
        """What ``shrink`` needs of ``begin``: columns alone, since a pass over all weights that is
        not done in blocks takes longer than the rest of the step."""
        decay = self.values["weight_decay"]
        if learning_rate.shape[1] == decay.shape[1] == 1:
            return {"shrinkage": 1 - learning_rate * decay}
        return {"decayed_rate": learning_rate}

    @staticmethod
    def shrink(weights: Tensor, scratch: Tensor, values: Mapping[str, Tensor]) -> None:
        """weights <- (1 - learning rate · weight_decay) weights, for some columns."""
        if "shrinkage" in values:
            weights.mul_(values["shrinkage"])
        else:
            torch.mul(values["decayed_rate"], values["weight_decay"], out=scratch)
            weights.mul_(scratch.neg_().add_(1))

    @abc.abstractmethod
    def begin(self, learning_rate: Tensor) -> dict[str, Tensor]:
        """The values of this step, ``(models, 1)`` or ``(models, size)``; called once a step."""

    @abc.abstractmethod
    def update(
        self,
        weights: Tensor,
        gradient: Tensor,
        scratch: Tensor,
        state: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
    ) -> None:
        """The step of some columns.

        Args:
            scratch: as large as ``weights``, for intermediate results.
            state: the tensors of the state that are as large as the weights.
            values: metaparameters, and those of ``begin``.
        """


class Optimizer(abc.ABC):
    """One entry of the registry: ``experiments.optimizers.get(name)``."""

    name: str
    """What loads it: a registered name, a class of ``torch.optim``, or ``file.py:Class``."""
    display_name: str | None = None
    """As an experiment gives it: ``file.py:Class as NAME``."""
    space: Space
    arguments: frozenset[str]
    defaults: Mapping[str, Value]
    """Defaults of metaparameters: torch's; one without a default in torch is not among them."""

    @property
    def label(self) -> str:
        """Its name in tables, figures and messages: the display name, or else its class."""
        return self.display_name or class_name(self.name)

    kind: Any
    """The class of torch's optimizer."""
    domains: Mapping[str, Domain] = MappingProxyType({})
    """Legal values of arguments where they are narrower than the usual ones."""
    stacks = True
    """Whether a stack of models gains from it; else the module engine is chosen."""
    multiplies_matrices = False
    """Whether its update is made of matrix products, which gain from a stack by themselves."""
    scope = "any parameter"
    """What it can train, in words."""

    def takes(self, shape: torch.Size, *, hidden: bool) -> bool:  # noqa: ARG002 - a hook
        """Whether it can train a parameter of this shape.

        Args:
            hidden: whether it is neither an embedding nor of the output layer.
        """
        return True

    @property
    def averages(self) -> bool:
        """Whether evaluations measure other weights than it trains: a class with the methods
        ``eval`` and ``train``, as schedule-free optimizers have them."""
        return all(callable(getattr(self.kind, name, None)) for name in ("eval", "train"))

    def uses(self, name: str, given: Iterable[str]) -> bool:  # noqa: ARG002 - a hook
        """Whether a metaparameter matters where those of ``given`` are set."""
        return True

    @abc.abstractmethod
    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        """Metaparameters as ``kind``'s constructor takes them."""

    def module(
        self,
        named_parameters: Iterable[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options] = MappingProxyType({}),
    ) -> torch.optim.Optimizer:
        """The optimizer of one model, over its trainable parameters; ``options``: of some, by
        name."""
        parameters = self._groups(list(named_parameters), metaparameters, options, named=False)
        made: torch.optim.Optimizer = self.kind(parameters, **self.torch_arguments(metaparameters))
        return made

    def _groups(
        self,
        pairs: Sequence[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options],
        *,
        named: bool,
    ) -> list[Any]:
        """The constructor's first argument: parameters, or groups of parameters with their
        options."""
        if not options:
            return [pair if named else pair[1] for pair in pairs]
        groups: dict[tuple[tuple[str, float], ...], list[Any]] = {}
        for pair in pairs:
            key = tuple(sorted(options.get(pair[0], {}).items()))
            groups.setdefault(key, []).append(pair if named else pair[1])
        common = self.torch_arguments(metaparameters)
        made = []
        for key, members in groups.items():
            values = {**metaparameters, **dict(key)}
            if (factor := values.pop(RATE_FACTOR, None)) is not None:
                rate = values.get("learning_rate", self.defaults.get("learning_rate", 1.0))
                values["learning_rate"] = float(rate) * float(factor)
            arguments = self.torch_arguments(values)
            changed = {k: v for k, v in arguments.items() if common.get(k) != v}
            made.append({"params": members, **changed})
        return made

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],  # noqa: ARG002 - a hook
        like: Tensor,  # noqa: ARG002
        options: Mapping[str, Tensor],  # noqa: ARG002
        parameters: Sequence[ParameterSlice],  # noqa: ARG002
    ) -> StackedUpdate | None:
        """The fused form with one model per row of ``like``; ``None`` if there is none.

        Args:
            options: by metaparameter, its value at each number of a row, float64; NaN where the
                model's value applies.
            parameters: where each trainable parameter is in a row; between them is padding.
        """
        return None

    def parameter_groups(
        self,
        named_parameters: Mapping[str, Tensor],  # noqa: ARG002 - a hook
    ) -> Mapping[str, Mapping[str, float]]:
        """Options of some parameters: pattern of names -> metaparameters."""
        return {}

    def effective_learning_rate(
        self,
        metaparameters: Mapping[str, Value],  # noqa: ARG002
    ) -> float | None:
        """learning rate / (1 - momentum), or ``None`` where that has no meaning."""
        return None

    def arguments_in(self, metaparameters: Mapping[str, Value]) -> dict[str, Value]:
        """The part of a trial's metaparameters that this optimizer takes."""
        return {k: v for k, v in metaparameters.items() if k in self.arguments}


class PackagedOptimizer(Optimizer):
    """The arguments are those of ``defaults``, renamed for the class ``kind``."""

    form: ClassVar[type[StackedUpdate] | None] = None
    """The fused form, if there is one."""

    def __init__(self) -> None:
        self.arguments = frozenset(self.defaults)

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        """The names of torch: ``lr``, ``betas``, ``eps``; the others are not renamed."""
        values = {k: float(v) for k, v in {**self.defaults, **metaparameters}.items()}
        arguments: dict[str, Any] = {"lr": values.pop("learning_rate")}
        if {"beta1", "beta2"} <= values.keys():
            arguments["betas"] = (values.pop("beta1"), values.pop("beta2"))
        if "epsilon" in values:
            arguments["eps"] = values.pop("epsilon")
        return {**arguments, **values}

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        parameters: Sequence[ParameterSlice],
    ) -> StackedUpdate | None:
        """``form``, with all arguments but the learning rate."""
        if self.form is None:
            return None
        defaults = {k: float(v) for k, v in self.defaults.items() if k != "learning_rate"}
        return self.form(columns(metaparameters, defaults, options), like, parameters)


class LibraryOptimizer(PackagedOptimizer):
    """An optimizer of the package pytorch-optimizer."""

    library_class: ClassVar[str]

    @functools.cached_property
    def kind(self) -> Any:
        """The library's class; the library is imported when it is first needed (0.7 s)."""
        import pytorch_optimizer

        return getattr(pytorch_optimizer, self.library_class)


def norm_of_rows(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row of ``(models, numbers)``, as ``(models, 1)``.

    A sum along the rows adds the numbers of each in the same order, whatever their number.
    """
    return (rows * rows).sum(dim=1, keepdim=True).sqrt_()


def columns(
    metaparameters: Sequence[Mapping[str, Value]],
    defaults: Mapping[str, float],
    options: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """One ``(models, 1)`` float64 column a metaparameter of ``defaults``; ``(models, size)`` where
    ``options`` has it."""
    values = {
        name: torch.tensor(
            [[float(m.get(name, default))] for m in metaparameters], dtype=torch.float64
        )
        for name, default in defaults.items()
    }
    for name in values.keys() & options.keys():
        option = options[name].cpu()
        values[name] = torch.where(option.isnan(), values[name], option)
    return values


def decay_into_gradient(weights: Tensor, gradient: Tensor, weight_decay: Tensor) -> None:
    """L2 regularization: add ``weight_decay * weights`` to the gradient, in place."""
    gradient.add_(weights * weight_decay)
