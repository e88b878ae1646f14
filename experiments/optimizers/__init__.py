"""How weights move: the packaged optimizers, torch's, and the user's."""

import torch

from experiments.optimizers import routed
from experiments.optimizers.base import Optimizer
from experiments.optimizers.stacked_update import StackedUpdate
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.registry import Registry

__all__ = ["OPTIMIZERS", "Optimizer", "StackedUpdate", "get", "label", "names"]

OPTIMIZERS = Registry(
    "optimizer",
    __name__,
    Optimizer,  # type: ignore[type-abstract]
    user_base=("torch.optim.Optimizer", torch.optim.Optimizer),
    user_contract="its constructor takes (params, lr, ...)",
    adopt=UserOptimizer,
    other=lambda name: getattr(torch.optim, name, None),
)
names = OPTIMIZERS.names


def get(text: str, base: str | None = None) -> Optimizer:
    """The optimizer of a name, of ``file.py:Class``, or of a mapping of parameters to optimizers.

    Args:
        text: a display name may follow (``experiments.registry``); a mapping is JSON or YAML
            (``experiments.optimizers.routed``).
        base: folder that a relative file starts from.

    Raises:
        ExperimentError: there is no such optimizer, or the class cannot be one.
    """
    if routed.is_text(text):
        return routed.load(text, lambda name: OPTIMIZERS.get(name, base))
    return OPTIMIZERS.get(text, base)


def label(text: str) -> str:
    """The display name of what ``get`` makes of ``text``, without loading it."""
    if routed.is_text(text):
        return routed.label_of(text, OPTIMIZERS.label)
    return OPTIMIZERS.label(text)
