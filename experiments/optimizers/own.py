"""Any ``torch.optim.Optimizer`` class: one of torch's by its class name, or one's own file's.

Its constructor's arguments are its metaparameters (``learning_rate`` is ``lr``; ``beta1`` and
``beta2`` are ``betas``, ``epsilon`` is ``eps``); an optional class attribute ``space`` is its
default search space.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.errors import ExperimentError
from experiments.optimizers.base import Optimizer, StackedUpdate
from experiments.plan import Value

_ALIASES = {"lr": ("learning_rate",), "betas": ("beta1", "beta2"), "eps": ("epsilon",)}


class OwnOptimizer(Optimizer):
    """Wraps the class ``kind``; ``name`` is what the experiment file calls it."""

    def __init__(self, name: str, kind: type[torch.optim.Optimizer]) -> None:
        if "closure" in inspect.signature(kind.step).parameters and kind is torch.optim.LBFGS:
            raise ExperimentError(
                f"optimizer {name!r} evaluates the loss several times a step, which is not SGD",
                hint="choose a first-order optimizer",
            )
        self.name = name
        self.kind = kind
        signature = list(inspect.signature(kind.__init__).parameters)[2:]  # after self, params
        self.constructor = [a for a in signature if a not in ("args", "kwargs")]
        names: list[str] = []
        for argument in self.constructor:
            names.extend(_ALIASES.get(argument, (argument,)))
        self.arguments = frozenset(names)
        self.space = dict(getattr(kind, "space", {"learning_rate": {"log": [1e-5, 1]}}))

    def constructor_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        """Metaparameters under the constructor's own names."""
        defaults = {
            name: p.default for name, p in inspect.signature(self.kind.__init__).parameters.items()
        }
        found: dict[str, Any] = {}
        for argument in self.constructor:
            aliases = _ALIASES.get(argument, (argument,))
            if not any(a in metaparameters for a in aliases):
                continue
            if argument == "betas":
                base = defaults["betas"]
                found["betas"] = tuple(
                    float(metaparameters.get(a, base[i])) for i, a in enumerate(aliases)
                )
            else:
                found[argument] = metaparameters[aliases[0]]
        return found

    def module(
        self, parameters: Iterable[torch.nn.Parameter], metaparameters: Mapping[str, Value]
    ) -> torch.optim.Optimizer:
        return self.kind(parameters, **self.constructor_arguments(metaparameters))

    def grouped(
        self,
        parameters: Sequence[Sequence[torch.nn.Parameter]],
        metaparameters: Sequence[Mapping[str, Value]],
    ) -> torch.optim.Optimizer:
        """One parameter group a model: ``parameters[i]`` with ``metaparameters[i]``."""
        values = [self.constructor_arguments(m) for m in metaparameters]
        groups = [{"params": list(p), **v} for p, v in zip(parameters, values, strict=True)]
        return self.kind(groups, **values[0])

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],  # noqa: ARG002
        like: Tensor,  # noqa: ARG002
    ) -> StackedUpdate | None:
        return None
