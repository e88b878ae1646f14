"""How weights move: the registered optimizers, torch's, and one's own."""

from experiments.optimizers.base import Optimizer, StackedUpdate
from experiments.optimizers.registry import get, label, names

__all__ = ["Optimizer", "StackedUpdate", "get", "label", "names"]
