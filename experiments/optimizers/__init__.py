"""How weights move: the packaged optimizers, torch's, and the user's."""

import torch

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
get, label, names = OPTIMIZERS.get, OPTIMIZERS.label, OPTIMIZERS.names
