"""The interface of a layout: how one model spreads over the ranks that train it.

Ranks that together hold one copy of a model are its *model ranks*; the copies train different
shares of each global batch and are the *data ranks*. The ranks of one copy follow one another:
rank 0 … ``model_ranks - 1`` hold the first copy.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from experiments.parallel.ranks import SOLO, Ranks


class ParallelLayout(abc.ABC):
    """Derive from it, and define ``reduce_gradients`` and ``all_reduce``.

    The other methods suit a layout in which every rank has the whole model; one that spreads a
    model over several ranks overrides them too. Every rank calls the same methods in the same
    order, so that a method may communicate.
    """

    name: str
    """What loads it: a packaged name, or ``file.py:Class``."""
    summary: ClassVar[str] = ""
    """One line for ``batchscale list layouts``."""
    stacks: ClassVar[bool] = False
    """Whether it works in the stacked engine, which never calls ``wrap``, ``state`` or ``load``
    and gives ``reduce_gradients`` one tensor: the gradients of all models of the stack."""
    model_ranks = 1
    """Ranks that hold one copy of a model."""
    ranks: Ranks = SOLO

    def join(self, ranks: Ranks) -> Self:
        """Take part in a group of ranks. A layout makes its process groups here."""
        self.ranks = ranks
        return self

    @property
    def data_ranks(self) -> int:
        """Copies of a model: each trains a share of the global batch."""
        return self.ranks.size // self.model_ranks

    def share(self, examples: int, unit: int = 1) -> slice:
        """The part of a global batch, or of a split to evaluate, that this rank's copy takes.

        Contiguous, and as equal as whole units of ``unit`` examples (a ghost batch) allow; a copy
        beyond the number of units gets an empty share.
        """
        rank, units = self.ranks.rank // self.model_ranks, examples // unit
        low, high = (units * i // self.data_ranks * unit for i in (rank, rank + 1))
        return slice(low, examples if rank == self.data_ranks - 1 else high)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as this rank trains it: its ``forward`` may communicate, and its parameters
        are those that the optimizer of this rank updates.

        Args:
            model: freshly initialized, equal on every rank.
        """
        return model

    @abc.abstractmethod
    def reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients over the data ranks, in place.

        Args:
            gradients: those of this rank's trained parameters, in the model's order.
        """

    @abc.abstractmethod
    def all_reduce(self, sums: Tensor) -> Tensor:
        """Sum over the data ranks, in place: sums of losses, metrics and statistics."""

    def all_true(self, flags: Tensor) -> Tensor:
        """Whether each flag is true on all model ranks: which models are finite."""
        return flags

    def state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The whole state of a wrapped model and its optimizer, equal on every rank, as one rank
        with the whole model has it: ``{"model": …, "optimizer": …}``."""
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Continue from ``state``; the optimizer may keep the tensors that it is given."""
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
