"""Any ``torch.optim.Optimizer`` class: one of torch by its class name, or one of a user's file.

Its constructor's arguments are its metaparameters (``learning_rate`` is ``lr``; ``beta1`` and
``beta2`` are ``betas``, ``epsilon`` is ``eps``); an optional class attribute ``space`` is its
default search space. With ``elementwise = True`` it says that each entry of a parameter moves by
itself: layouts that cut parameters need not gather them. It gets a model's parameters, which it
may put into groups; with their names, if its first argument, or a further one, is called
``named_parameters``. A static method ``parameter_groups`` gives some of them options
(``experiments.optimizers.groups``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from experiments.errors import ExperimentError
from experiments.optimizers.base import Named, Optimizer, Options
from experiments.search.space import Value

_ALIASES = {"lr": ("learning_rate",), "betas": ("beta1", "beta2"), "eps": ("epsilon",)}
_NAMED = "named_parameters"
_NOT_ELEMENTWISE = ("Adafactor", "LBFGS", "Muon")
"""Optimizers of torch that use norms, rows or products of a parameter."""
_DECOUPLED = ("Adafactor", "AdamW", "Muon")
"""Optimizers of torch whose weight decay is no part of the gradient."""
_SWITCHES = ("foreach", "fused", "capturable", "differentiable", "maximize")
"""Arguments of torch's optimizers that change how a step is computed, not its result."""


class UserOptimizer(Optimizer):
    """Wraps the class ``kind``; ``name`` is what the experiment file calls it."""

    def __init__(self, name: str, kind: type[torch.optim.Optimizer]) -> None:
        if inspect.unwrap(kind.step) is torch.optim.Optimizer.step:
            raise ExperimentError(
                f"optimizer {name} has no step()", hint="step() moves p by p.grad, of each group"
            )
        closure = inspect.signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ExperimentError(
                f"optimizer {name!r} evaluates the loss several times a step, which is not SGD",
                hint="choose a first-order optimizer",
            )
        self.name = name
        self.kind = kind
        # Of one of a user's file nothing is assumed.
        of_torch = f"{kind.__module__}.".startswith("torch.optim.")
        by_entry = of_torch and name not in _NOT_ELEMENTWISE
        self.elementwise = bool(getattr(kind, "elementwise", by_entry))
        if of_torch:
            self.decoupled_decay = name in _DECOUPLED
        self._parameters = dict(inspect.signature(kind.__init__).parameters)
        _, *first = list(self._parameters)[:2]  # self, and the argument that gets the parameters
        self._pairs_first = first == [_NAMED]
        others = list(self._parameters)[2:]
        self._pairs_too = _NAMED in others
        self.constructor = [a for a in others if a not in ("args", "kwargs", _NAMED)]
        self.arguments = frozenset(name for a in self.constructor for name in _names(a))
        self.space = dict(getattr(kind, "space", {"learning_rate": {"log": [1e-5, 1]}}))
        self.defaults = {
            name: value
            for argument in self.constructor
            if argument not in _SWITCHES
            for name, value in zip(_names(argument), self._default(argument), strict=False)
        }

    def _default(self, argument: str) -> tuple[Value, ...]:
        """The default values of an argument: two of ``betas``; an empty list without a default."""
        default = self._parameters[argument].default
        pair = isinstance(default, (tuple, list)) and len(default) == 2
        values = tuple(default) if argument == "betas" and pair else (default,)
        return values if all(isinstance(v, (bool, int, float, str)) for v in values) else ()

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        """Metaparameters under the constructor's own names.

        Raises:
            ExperimentError: one that has no default is not given.
        """
        arguments: dict[str, Any] = {}
        for argument in self.constructor:
            given = [name for name in _names(argument) if name in metaparameters]
            if not given:
                if self._parameters[argument].default is inspect.Parameter.empty:
                    raise self._needs(argument)
            elif argument == "betas":
                pair = [metaparameters.get(n, self.defaults.get(n)) for n in _names("betas")]
                if None in pair:
                    raise self._needs(argument)
                arguments["betas"] = tuple(float(value) for value in pair if value is not None)
            else:
                arguments[argument] = metaparameters[given[0]]
        return arguments

    def _needs(self, argument: str) -> ExperimentError:
        names = _names(argument)
        return ExperimentError(
            f"optimizer {self.name} needs a value of {' and '.join(names)}",
            hint=f"in an experiment: search: {{{names[0]}: …}}; or a default in its constructor",
        )

    def module(
        self,
        named_parameters: Iterable[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options] = MappingProxyType({}),
    ) -> torch.optim.Optimizer:
        pairs = list(named_parameters)
        self._check_shapes(pairs)
        arguments = self.torch_arguments(metaparameters)
        if self._pairs_too:
            arguments[_NAMED] = list(pairs)
        groups = self._groups(pairs, metaparameters, options, named=self._pairs_first)
        if not options:
            return self.kind(groups, **arguments)
        changed = sorted({name for group in groups for name in group} - {"params"})
        try:
            made = self.kind(groups, **arguments)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ExperimentError(
                f"optimizer {self.label} cannot be made with groups of parameters, which "
                f"parameter_groups asks for: {error}",
                hint="hand what the constructor gets to torch.optim.Optimizer's, which takes "
                "[{'params': [...], 'weight_decay': 0}, ...]",
            ) from error
        for name in changed:
            if any(name not in group for group in made.param_groups):
                raise ExperimentError(
                    f"optimizer {self.label} keeps no {name!r} in its parameter groups, which "
                    "parameter_groups could change",
                    hint="hand it to torch.optim.Optimizer's constructor in the defaults",
                )
        return made

    def parameter_groups(
        self, named_parameters: Mapping[str, Tensor]
    ) -> Mapping[str, Mapping[str, float]]:
        groups: Any = getattr(self.kind, "parameter_groups", None)
        return {} if groups is None else groups(named_parameters)

    def _check_shapes(self, pairs: list[Named]) -> None:
        """torch's Muon raises too, but names neither the parameter nor a remedy."""
        if self.kind.__init__ is not torch.optim.Muon.__init__:
            return
        others = [name for name, parameter in pairs if parameter.ndim != 2]
        if others:
            many = "parameter" if len(others) == 1 else "parameters"
            raise ExperimentError(
                f"optimizer {self.name} takes only matrices; the model has {len(others)} other "
                f"{many} (first: {others[0]})",
                hint="optimizer muon trains the rest with AdamW",
            )


def _names(argument: str) -> tuple[str, ...]:
    """The name of a constructor's argument in experiments."""
    return _ALIASES.get(argument, (argument,))
