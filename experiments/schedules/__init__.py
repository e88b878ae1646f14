"""How the learning rate moves: the packaged schedules, and users' classes."""

from experiments.schedules.base import Schedule
from experiments.schedules.registry import get, label, names

__all__ = ["Schedule", "get", "label", "names"]
