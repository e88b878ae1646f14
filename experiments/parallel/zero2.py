"""ZeRO stage 2 (Rajbhandari et al. 2020, arXiv:1910.02054) in place of stage 3: ``fully_shard``
without resharding after the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Zero2(Dimension):
    """Parameters stay gathered from the forward to the backward pass: one gathering less for each
    pass, and the memory of a whole model meanwhile. Gradients and states of the optimizer are cut
    as before."""

    name = "zero2"
    summary = "true: parameters that shard cuts stay gathered until the backward pass (ZeRO-2)"
    order = 50
    switch = True

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        if sizes.get("shard", 1) < 2:
            return (
                "zero2 is about the parameters that shard cuts, and there is no shard",
                "layout: {shard: 2, zero2: true}",
            )
        return None

    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule

        sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for module in sharded:
            module.set_reshard_after_forward(False, recurse=False)

        def let_go(*_: Any) -> None:
            """No backward pass follows an evaluation, and outside of a pass ranks have shares."""
            if not torch.is_grad_enabled():
                for module in sharded:
                    module.reshard()

        model.register_forward_hook(let_go)
        return model
