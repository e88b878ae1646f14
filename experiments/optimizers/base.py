"""What an optimizer is to the engines: legal arguments, a default search space, and two forms.

The *module* form is a ``torch.optim.Optimizer`` over one model's parameters; the *stacked* form
updates many models at once (``stacked_update``).
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.optimizers.stacked_update import ParameterSlice, StackedUpdate
from experiments.search.domains import Domain
from experiments.search.space import Value
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


def averages(optimizer: Any) -> bool:
    """Whether an optimizer of torch, or its class, measures other weights than it trains."""
    return all(callable(getattr(optimizer, name, None)) for name in ("eval", "train"))


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
    decoupled_decay: bool | None = None
    """Whether a step shrinks the weights by learning rate times weight decay, so that weight decay
    has a time scale; ``None``: not known."""
    sums_gradients = False
    """Whether gradients are summed with the factor ``momentum``, so that a constant one moves the
    weights by learning rate / (1 - momentum) times it."""
    multiplies_matrices = False
    """Whether its update is made of matrix products, which gain from a stack by themselves."""
    elementwise = False
    """Whether each entry of a parameter moves by itself, so that ranks which hold parts of it need
    no other: no norm, no product of matrices, no choice among entries."""
    amplifies_rounding = False
    """Whether differences in the last bits of a gradient grow to a share of the weights within
    tens of steps: decompositions, or products in bfloat16. In micro-batches or on several workers
    such an optimizer takes another trajectory, of the same distribution."""
    uses_hidden = False
    """Whether it asks for the option ``HIDDEN``."""

    def whole(
        self, shapes: Mapping[str, torch.Size], options: Mapping[str, Options]
    ) -> frozenset[str]:
        """Names of the parameters that its update needs whole, of those with these shapes."""
        return frozenset() if self.elementwise else frozenset(shapes)

    @property
    def averages(self) -> bool:
        """Whether evaluations measure other weights than it trains: a class with the methods
        ``eval`` and ``train``, as schedule-free optimizers have them."""
        return averages(self.kind)

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
                values["learning_rate"] = self.learning_rate(values) * float(factor)
            arguments = self.torch_arguments(values)
            changed = {k: v for k, v in arguments.items() if common.get(k) != v}
            made.append({"params": members, **changed})
        return made

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        parameters: Sequence[ParameterSlice],
    ) -> StackedUpdate | None:
        """The fused form with one model per row of ``like``; ``None`` if there is none.

        Args:
            options: by metaparameter, its value at each number of a row, float64; NaN where the
                model's value applies.
            parameters: where each trainable parameter is in a row; between them is padding.
        """
        return None

    def parameter_groups(
        self, named_parameters: Mapping[str, Tensor]
    ) -> Mapping[str, Mapping[str, float]]:
        """Options of some parameters: pattern of names -> metaparameters."""
        return {}

    def learning_rate(self, metaparameters: Mapping[str, Value]) -> float:
        """A trial's, or else the default; 1 of a class without either."""
        return float(metaparameters.get("learning_rate", self.defaults.get("learning_rate", 1.0)))

    def effective_learning_rate(self, metaparameters: Mapping[str, Value]) -> float | None:
        """learning rate / (1 - momentum), or ``None`` where that has no meaning."""
        if not self.sums_gradients:
            return None
        values = {"momentum": 0.0, **self.defaults, **self.arguments_in(metaparameters)}
        return float(metaparameters["learning_rate"]) / (1 - float(values["momentum"]))

    def arguments_in(self, metaparameters: Mapping[str, Value]) -> dict[str, Value]:
        """The part of a trial's metaparameters that this optimizer takes."""
        return {k: v for k, v in metaparameters.items() if k in self.arguments}


class PackagedOptimizer(Optimizer):
    """The arguments are those of ``defaults``, renamed for the class ``kind``."""

    form: ClassVar[type[StackedUpdate] | None] = None
    """The fused form, if there is one."""
    decoupled_decay = False

    def __init__(self) -> None:
        self.arguments = frozenset(self.defaults)

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        """The names of torch: ``lr``, ``betas``, ``eps``; the others are not renamed. Numbers are
        whole where the default is."""
        values: dict[str, Any] = {
            name: type(self.defaults.get(name, 0.0))(value)
            for name, value in {**self.defaults, **metaparameters}.items()
        }
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
        values = [{**self.defaults, **m} for m in metaparameters]
        names = self.arguments - {"learning_rate"}
        return self.form(columns(values, names, options), like, parameters)


class LibraryOptimizer(PackagedOptimizer):
    """An optimizer of the package pytorch-optimizer."""

    library_class: ClassVar[str]

    @functools.cached_property
    def kind(self) -> Any:
        """The library's class; the library is imported when it is first needed (0.7 s)."""
        import pytorch_optimizer

        return getattr(pytorch_optimizer, self.library_class)


def columns(
    metaparameters: Sequence[Mapping[str, Value]],
    names: Iterable[str],
    options: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """One ``(models, 1)`` float64 column for each of ``names``; ``(models, size)`` where
    ``options`` has it."""
    values = {
        name: torch.tensor([[float(m[name])] for m in metaparameters], dtype=torch.float64)
        for name in sorted(names)
    }
    for name in values.keys() & options.keys():
        option = options[name].cpu()
        values[name] = torch.where(option.isnan(), values[name], option)
    return values
