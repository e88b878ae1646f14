"""The optimizers by name: a new one is an entry of ``_known``; one's own needs none."""

from __future__ import annotations

from collections.abc import Callable

import torch

from experiments.errors import ExperimentError, nearest
from experiments.optimizers.adam import Adam
from experiments.optimizers.base import Optimizer
from experiments.optimizers.sgd import SGD
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.user_classes import load, split
from results.optimizers import class_name

_KNOWN: dict[str, Callable[[], Optimizer]] = {
    "sgd": lambda: SGD("sgd"),
    "momentum": lambda: SGD("momentum"),
    "nesterov": lambda: SGD("nesterov"),
    "adam": lambda: Adam(decoupled=False),
    "adamw": lambda: Adam(decoupled=True),
}


def names() -> list[str]:
    """The registered names, without those of torch and of users' files."""
    return list(_KNOWN)


def get(text: str, base: str | None = None) -> Optimizer:
    """The optimizer of a name, perhaps with what it is to be called: ``my_opt.py:Lion as Lion``.

    Args:
        text: a registered name, a class of ``torch.optim``, or ``file.py:Class``; ``as`` and a
            display name may follow.
        base: folder that a relative file starts from.

    Raises:
        ExperimentError: no such optimizer, or what is named is none.
    """
    name, display_name = split(text)
    optimizer = _load(name, base)
    optimizer.display_name = display_name
    return optimizer


def label(text: str) -> str:
    """What the optimizer that ``get`` makes of ``text`` is called, without loading it."""
    name, display_name = split(text)
    return display_name or class_name(name)


def _load(name: str, base: str | None) -> Optimizer:
    if name in _KNOWN:
        return _KNOWN[name]()
    if ":" in name:
        kind = load("optimizer", name, base, torch.optim.Optimizer)
    else:
        kind = getattr(torch.optim, name, None)
        if kind is None:
            raise ExperimentError(f"unknown optimizer {name!r}", hint=nearest(name, _KNOWN))
    base_class = torch.optim.Optimizer
    if not (isinstance(kind, type) and issubclass(kind, base_class)) or kind is base_class:
        raise ExperimentError(
            f"optimizer {name!r} is not a class of torch.optim.Optimizer",
            hint="subclass torch.optim.Optimizer; its constructor takes (params, lr, ...)",
        )
    return UserOptimizer(name, kind)
