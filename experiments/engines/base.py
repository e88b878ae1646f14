"""The interface of an engine: many trials of one study, at the same step, on one worker group."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.plan import Trial
from experiments.training.setup import Setup


class Engine(abc.ABC):
    """Trains its trials in lockstep. What stops a trial is decided above (``Training``)."""

    kind: str

    def __init__(self, setup: Setup, trials: Sequence[Trial]) -> None:
        self.setup = setup
        self.trials = list(trials)
        self.step = 0

    @abc.abstractmethod
    def advance(self, steps: int) -> None:
        """Train every trial for ``steps`` more steps."""

    @abc.abstractmethod
    def evaluate(self, split: str) -> list[dict[str, float]]:
        """Each trial's metrics on a whole split: float64 sums over counts, over all ranks."""

    @abc.abstractmethod
    def finite(self) -> list[bool]:
        """Whether each trial's losses and weights have been finite at every step so far."""

    @abc.abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these trials alone (positions in ``trials``, ascending)."""

    @abc.abstractmethod
    def weights(self, row: int) -> dict[str, Tensor]:
        """A copy of one trial's parameters and buffers by name."""

    @abc.abstractmethod
    def state(self) -> dict[str, Any]:
        """All that ``load`` needs to continue exactly, as CPU tensors and plain values."""

    @abc.abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state`` of an engine with the same setup and trials."""


def gather(values: Any, device: torch.device) -> Any:
    """Tensors inside nested dicts, lists and tuples, moved to ``device`` (a copy)."""
    if isinstance(values, Tensor):
        return values.detach().to(device, copy=True)
    if isinstance(values, dict):
        return {k: gather(v, device) for k, v in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(gather(v, device) for v in values)
    return values
