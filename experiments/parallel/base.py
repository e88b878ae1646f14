"""The interface of a layout: how one model spreads over the ranks that train it.

Ranks that together train one share of each global batch are *model ranks*; those that train
different shares are *data ranks*. The model ranks of one share follow one another: rank 0 …
``model_ranks - 1`` train the first share.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.parallel.ranks import SOLO, Ranks
from experiments.techniques.communication import Communication
from workloads import Batch, LayoutPlan

Named = Sequence[tuple[str, nn.Parameter]]
MakeOptimizer = Callable[[Named], torch.optim.Optimizer]
"""Makes an optimizer over parameters with their names."""


@dataclass(frozen=True, kw_only=True)
class ForwardPass:
    """A micro-batch of this rank's share of a global batch."""

    batch: Batch
    loss: Callable[[Any], Tensor]
    """The loss of each example, ``(examples,)``, given the model, or a function that returns the
    model's output. It enters ``drawing`` by itself."""
    drawing: Callable[[Collection[str]], AbstractContextManager[Any]]
    """Within, the precision and the random numbers of a forward pass, from where the first of these
    modules begins; of none: from the start."""
    weights: Callable[[torch.dtype], Tensor]
    """Each example's weight in the mean loss of the global batch, ``(examples,)``."""
    sums: bool
    """Whether gradients may be summed over the data ranks while its backward pass goes on: it is
    this rank's last one of the step, and every rank has one."""


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
    """Ranks that train the same examples."""
    ranks: Ranks = SOLO
    staged = False
    """Whether a model is cut into stages, through which micro-batches flow."""
    passes_together = False
    """Whether data ranks communicate in a forward pass: each then makes as many as the others,
    perhaps of no examples."""
    activation_part: tuple[int, int] = (0, 1)
    """This rank's number, and how many ranks share the activations of an example: each draws its
    share of the random numbers of dropout."""

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
        return self._shares(examples, unit)[self.ranks.rank // self.model_ranks]

    def _shares(self, examples: int, unit: int) -> list[slice]:
        units, copies = examples // unit, self.data_ranks
        ends = [units * i // copies * unit for i in range(copies)] + [examples]
        return [slice(low, high) for low, high in itertools.pairwise(ends)]

    def micro_batch(self, examples: int, most: int, unit: int = 1) -> int:
        """Examples of a forward pass in training, of a global batch of so many: ``most`` of them
        or fewer, in whole units."""
        return most

    def passes(self, examples: int, most: int, unit: int = 1) -> int:
        """How many forward passes of at most ``most`` examples this rank makes for its share."""
        share = self.share(examples, unit)
        shares = self._shares(examples, unit) if self.passes_together else [share]
        return max(-(-(part.stop - part.start) // most) for part in shares)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as this rank trains it: its ``forward`` may communicate, and its parameters
        are those that the optimizer of this rank updates.

        Args:
            model: freshly initialized, equal on every rank.
        """
        return model

    def spread(self, model: nn.Module, plan: LayoutPlan | None) -> nn.Module:
        """``wrap``, in a layout that needs to know how the workload's model may be cut."""
        return self.wrap(model)

    def optimizer(
        self, model: nn.Module, make: MakeOptimizer, whole: Collection[str]
    ) -> torch.optim.Optimizer:
        """The optimizer of this rank, which is stepped when the gradient is in ``.grad``.

        Args:
            make: makes one over parameters with their names.
            whole: names of parameters whose update needs them whole, not a part of their entries.
        """
        return make([(n, p) for n, p in model.named_parameters() if p.requires_grad])

    def accumulate(self, model: nn.Module, passes: Iterable[ForwardPass], losses: Tensor) -> None:
        """Add the gradient of this rank's share to ``.grad``, and its losses to ``losses``."""
        for each in passes:
            loss = each.loss(model)
            # The gradient of sum(loss) / batch size, without two more nodes in the graph.
            loss.backward(each.weights(loss.dtype))
            losses.add_(loss.detach().sum())

    def communicate(self, model: nn.Module, how: Communication | None) -> None:
        """Sum gradients of ``model`` over the data ranks in this way; ``None``: exactly.

        Raises:
            ExperimentError: the layout cannot.
        """
        if how is not None:
            raise ExperimentError(
                f"layout {self.name} cannot sum gradients as technique {how.technique} says",
                hint="workers: 2 or more, without another layout",
            )

    def communication_state(self, model: nn.Module) -> dict[str, Any]:
        """What the way of summing keeps from step to step, of all ranks, equal on every rank."""
        return {}

    def load_communication(self, model: nn.Module, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from what ``communication_state`` gave."""

    def finish_gradient(self, model: nn.Module) -> None:
        """Make ``.grad`` the gradient of the whole global batch."""
        if self.ranks.size > 1:
            trained = [p for p in model.parameters() if p.requires_grad]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            self.reduce_gradients([p.grad for p in trained if p.grad is not None])

    def gather(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors, equal on every rank, from this rank's weights or gradients by name."""
        return dict(tensors)

    def part(self, model: nn.Module, name: str, whole: Tensor) -> Tensor:
        """What this rank holds of the whole weight or gradient of the parameter ``name``, in the
        form that the parameter has."""
        return whole

    def local(self, tensor: Tensor) -> Tensor:
        """This rank's entries of a parameter or a buffer, in the same memory."""
        return tensor

    def publish(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027 - a hook
        """Give the model the weights of an optimizer that has copies of them."""

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
