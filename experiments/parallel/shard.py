"""Sharded parameters: FSDP2, ``torch.distributed.fsdp.fully_shard`` (ZeRO stage 3, Rajbhandari et
al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Shard(Dimension):
    """Each block is gathered before it computes, forward and backward, and let go after; gradients
    are summed and scattered. Without blocks in the plan, the model is one."""

    name = "shard"
    summary = "each rank holds a share of every parameter and trains a share of each batch (FSDP)"
    order = 40
    passes_together = True

    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule, fully_shard

        # FSDP cannot shard a parameter without dimensions; such a gradient is summed by itself.
        scalars = {p for p in model.parameters() if p.dim() == 0}
        for block in modules_named(model, plan.blocks if plan is not None else ()).values():
            fully_shard(block, mesh=mesh[self.name], ignored_params=scalars)
        # The root, too, lets go of its parameters: outside of a pass every rank has its shares.
        fully_shard(model, mesh=mesh[self.name], reshard_after_forward=True, ignored_params=scalars)
        for module in model.modules():
            if isinstance(module, FSDPModule):  # sums: the loss is weighted by the global batch
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        pieces.note_shards({n: p for n, p in model.named_parameters() if p.dim()})
        return model


def modules_named(model: nn.Module, patterns: tuple[str, ...]) -> dict[str, nn.Module]:
    """The modules whose names match, part by part between dots, in the model's order."""
    from fnmatch import fnmatchcase

    def matches(name: str, pattern: str) -> bool:
        parts, wanted = name.split("."), pattern.split(".")
        return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))

    return {
        name: module
        for name, module in model.named_modules()
        if any(matches(name, pattern) for pattern in patterns)
    }
