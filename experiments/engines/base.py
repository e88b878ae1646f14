"""The interface of an engine: many trials of one study, each at its own step, on one worker group.

Trials join and leave while the others train; what a trial's weights become depends on none of them.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.plan import Trial
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import Parts
from experiments.training.study_context import StudyContext


class Engine(abc.ABC):
    """Trains its trials step by step. What stops a trial is decided by ``TrainingLoop``."""

    kind: str
    micro: int
    """Most examples of a model in one forward pass of training, before the layout divides them."""
    current: str | None = None
    """The trial whose code runs, where trials run one after the other."""

    def __init__(self, context: StudyContext, trials: Sequence[Trial]) -> None:
        self.context = context
        self.trials = list(trials)

    @property
    @abc.abstractmethod
    def steps(self) -> list[int]:
        """The present step of each trial, in the order of ``trials``."""

    @abc.abstractmethod
    def advance(self, steps: int) -> None:
        """Train every trial for ``steps`` more steps."""

    @abc.abstractmethod
    def evaluate(
        self,
        split: str,
        rows: Sequence[int] | None = None,
        parts: Parts | None = None,
        tests: Sequence[MissTest] = (),
    ) -> list[dict[str, float]]:
        """The metrics of ``rows`` (all trials) on a split: sums over counts, of all ranks.

        Args:
            tests: one a row; it reads ``parts`` of the split as long as it needs. Without, the
                whole split is read.
        """

    @abc.abstractmethod
    def recorded(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """What evaluations of ``rows`` record of their techniques (``Technique.recorded``)."""

    @abc.abstractmethod
    def finite(self) -> list[bool]:
        """Whether each trial's losses and weights have been finite at every step so far."""

    @property
    def micro_batch(self) -> int:
        """Most examples of a model in one forward pass of training on this rank: the batch size of
        a study that one rank trains whole."""
        layout, unit = self.context.layout, self.context.ghost_batch or 1
        whole = self.context.study.batches.largest
        share = layout.share(whole, unit)
        return min(layout.micro_batch(whole, self.micro, unit), share.stop - share.start)

    def skipped_steps(self, row: int) -> int | None:  # noqa: ARG002 - a hook
        """Steps of a trial without an update, since its gradient overflowed; ``None``: gradients
        are not scaled."""
        return None

    @abc.abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these trials alone (positions in ``trials``, ascending)."""

    @abc.abstractmethod
    def add(self, trials: Sequence[Trial]) -> None:
        """Let these begin, behind the others; each takes its own steps 0, 1, 2 …"""

    @abc.abstractmethod
    def copy(self, rows: Sequence[int]) -> list[Any]:
        """A copy of all that each of these trials needs to go on exactly: tensors and plain values.
        Every rank gets the same, and calls it for the same rows."""

    @abc.abstractmethod
    def restore(self, row: int, state: Any) -> None:
        """Set a trial to the ``state`` that was copied of it, in any pack and on any device."""

    @abc.abstractmethod
    def weights(self, row: int) -> dict[str, Tensor]:
        """A copy of one trial's parameters and buffers by name."""

    def close(self) -> None:
        """End the processes that read data; training on starts new ones."""
        for split in self.context.splits.values():
            split.close()

    @abc.abstractmethod
    def measured(self, row: int) -> dict[str, Tensor]:
        """As ``weights``, but as evaluations measure them: a technique or an optimizer may average
        them."""


def gather(values: Any, device: torch.device | None = None) -> Any:
    """Tensors inside nested dicts, lists and tuples, copied (to ``device``, if one is given)."""
    if isinstance(values, Tensor):
        return values.detach().to(device or values.device, copy=True)
    if isinstance(values, dict):
        return {k: gather(v, device) for k, v in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(gather(v, device) for v in values)
    return values
