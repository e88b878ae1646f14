"""A dimension of the mesh of ranks over which a model spreads; one file each.

``experiments.parallel.composed`` applies those that an experiment names, in their ``order``.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from torch import nn

from experiments.parallel.pieces import Pieces
from experiments.plan import Layout
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Dimension(abc.ABC):
    """Derive from it, and define ``apply``."""

    name: ClassVar[str]
    """Its key below ``layout``, and the name of the mesh's dimension."""
    summary: ClassVar[str]
    """One line for ``batchscale list layouts``."""
    order: ClassVar[int]
    """Its position when a model is made: dimensions of smaller numbers are applied first."""
    switch: ClassVar[bool] = False
    """Whether it is on or off, and uses the ranks of another dimension."""
    passes_together: ClassVar[bool] = False
    """See ``ParallelLayout``."""

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """The dimension as a layout has it."""
        return cls()

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        """Why a model cannot be cut so, and what to do; ``None``: it can.

        Args:
            sizes: ranks of each dimension of the layout.
            plan: what the workload says; ``None``: nothing.
        """
        return None

    def micro_batch(self, examples: int, most: int, unit: int, sizes: Mapping[str, int]) -> int:
        """Examples of a forward pass of a share of so many: ``most`` or fewer, in whole units."""
        return most

    @abc.abstractmethod
    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        """Cut the model.

        Args:
            mesh: the whole mesh, whose dimensions have the names of dimensions.
            pieces: takes which part of each parameter this rank then holds.
        """
