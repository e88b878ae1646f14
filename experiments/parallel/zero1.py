"""ZeRO stage 1 (Rajbhandari et al. 2020, arXiv:1910.02054): data parallelism whose ranks divide the
optimizer's state, by ``torch.distributed.optim.ZeroRedundancyOptimizer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from experiments.errors import ExperimentError
from experiments.parallel.base import MakeOptimizer, Named
from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces
from experiments.parallel.ranks import Ranks, TorchRanks
from experiments.plan import Layout
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from experiments.optimizers import Optimizer


class Zero1(Dimension):
    """Each parameter belongs to one rank, which alone has its state: that rank updates it, whole,
    and broadcasts it."""

    name = "zero1"
    summary = "true: each rank of data has a share of the optimizer's state (ZeRO-1)"
    order = 60
    switch = True
    cuts = False

    @classmethod
    def refusal(
        cls,
        sizes: Mapping[str, int],
        plan: LayoutPlan | None,  # noqa: ARG003 - any model
    ) -> tuple[str, str] | None:
        if "shard" in sizes:
            return (
                "shard and zero2 divide the optimizer's state already, and zero1 is the stage "
                "before them",
                "leave zero1 out; or data in the place of shard: layout: {data: 2, zero1: true}",
            )
        if sizes.get("data", 1) * sizes.get("context", 1) < 2:
            return (
                "zero1 divides the optimizer's state among the ranks of data, and there is no data",
                "layout: {data: 2, zero1: true}",
            )
        return None

    def apply(
        self,
        model: nn.Module,
        plan: LayoutPlan | None,  # noqa: ARG002
        mesh: DeviceMesh,  # noqa: ARG002
        pieces: Pieces,  # noqa: ARG002
    ) -> nn.Module:
        return model

    def optimizer(self, make: MakeOptimizer, copies: Ranks) -> MakeOptimizer:
        if not isinstance(copies, TorchRanks):
            return make

        def shared(named: Named) -> torch.optim.Optimizer:
            # torch's module takes seconds to import.
            from experiments.parallel.updates.shared_optimizer import SharedOptimizer

            return SharedOptimizer(make(named), copies)

        return shared


def refuse_joint_updates(layout: Layout, optimizer: Optimizer) -> None:
    """
    Raises:
        ExperimentError: ranks would each update some parameters, and the optimizer needs all.
    """
    if Zero1.name in dict(layout.dimensions) and not optimizer.per_parameter:
        raise ExperimentError(
            f"layout: zero1 gives each rank some of the parameters to update, and optimizer "
            f"{optimizer.label} may need all of them",
            hint="where each parameter moves by its own gradient alone, say so in its class: "
            "per_parameter = True; else leave zero1 out",
        )
