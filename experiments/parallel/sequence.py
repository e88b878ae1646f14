"""Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198): outside of the layers that
tensor ranks cut by features, their activations are cut by tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import nn

from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces
from experiments.parallel.shard import modules_named
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Sequence(Dimension):
    """The sums of tensor parallelism become a sum that is scattered and a gathering, which have the
    same volume; norms, dropout and what is kept for the backward pass are divided by the ranks."""

    name = "sequence"
    summary = (
        "true: outside of the layers that tensor cuts, each of its ranks has a share of the tokens"
    )
    order = 20
    switch = True

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        ranks = sizes.get("tensor", 1)
        if ranks < 2:
            return (
                "sequence uses the ranks of tensor, and there is no tensor",
                "layout: {tensor: 2, sequence: true}",
            )
        if plan is None or plan.sequence is None:
            return (
                "its layout_plan names no part whose activations are cut by tokens",
                "leave sequence out",
            )
        if plan.sequence.length % ranks:
            return (
                f"{ranks} tensor ranks do not divide sequences of {plan.sequence.length} tokens",
                "choose another tensor, or sequences of another length",
            )
        return None

    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import (
            PrepareModuleInput,
            SequenceParallel,
            parallelize_module,
        )

        assert plan is not None
        assert plan.sequence is not None
        whole, cut = Replicate(), Shard(1)
        norms = modules_named(model, plan.sequence.norms)
        parallelize_module(
            model,
            mesh["tensor"],
            {
                plan.sequence.first: PrepareModuleInput(
                    input_layouts=whole, desired_input_layouts=cut, use_local_output=True
                ),
                plan.sequence.after: PrepareModuleInput(
                    input_layouts=cut, desired_input_layouts=whole, use_local_output=True
                ),
                **{name: SequenceParallel(use_local_output=True) for name in norms},
            },
            src_data_rank=None,
        )
        return model
