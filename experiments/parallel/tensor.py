"""Tensor parallelism: layers in pairs, the first cut by its outputs, the second by its inputs
(Shoeybi et al. 2019, arXiv:1909.08053), by ``torch.distributed.tensor.parallel``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from experiments.errors import ExperimentError
from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces, tensor_part
from experiments.parallel.shard import modules_named
from workloads import LayoutPlan
from workloads.ghost import GhostBatchNorm

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Tensor(Dimension):
    """One sum of activations in the forward pass of each pair, one of gradients in the backward."""

    name = "tensor"
    summary = "each rank holds a share of the features of the layers that the workload names"
    order = 10

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        ranks = sizes[cls.name]
        if plan is None or not plan.cuts:
            return (
                "its layout_plan names no layers to cut",
                "layout: {shard: …} and data fit any model",
            )
        for what, size in plan.multiples.items():
            if size % ranks:
                return (
                    f"{ranks} tensor ranks do not divide {what}, {size}",
                    f"choose another tensor, or {what}",
                )
        return None

    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        from torch.distributed.tensor.parallel import parallelize_module

        assert plan is not None
        parallelize_module(
            model, mesh[self.name], self.styles(model, plan, pieces), src_data_rank=None
        )
        for name, norm in modules_named(model, plan.channels).items():
            _cut_norm(name, norm, mesh[self.name], pieces)
        return model

    def styles(self, model: nn.Module, plan: LayoutPlan, pieces: Pieces) -> dict[str, Any]:
        """The style of each layer; notes how its parameters are cut."""
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        ranks = pieces.tensor
        outside = Replicate() if plan.sequence is None else Shard(1)
        styles: dict[str, Any] = {}
        for pattern, parts in plan.columns.items():
            for name, layer in _linear(model, pattern).items():
                _check(name, layer.out_features, parts * ranks.size)
                styles[name] = ColwiseParallel(input_layouts=outside)
                for kind, parameter in layer.named_parameters():
                    pieces.cut(f"{name}.{kind}", 0, parts)
                    if parts > 1:  # DTensor cuts rows that follow one another
                        orders = [
                            tensor_part(parameter.detach(), 0, parts, ranks, i)
                            for i in range(ranks.size)
                        ]
                        parameter.data = torch.cat(orders)
        for pattern in plan.rows:
            for name, layer in _linear(model, pattern).items():
                _check(name, layer.in_features, ranks.size)
                styles[name] = RowwiseParallel(output_layouts=outside)
                pieces.cut(f"{name}.weight", 1)
        return styles


def _linear(model: nn.Module, pattern: str) -> dict[str, nn.Linear]:
    """The layers of this name.

    Raises:
        ExperimentError: there is none, or it is no linear layer.
    """
    layers: dict[str, nn.Linear] = {}
    for name, module in modules_named(model, (pattern,)).items():
        if not isinstance(module, nn.Linear):
            raise ExperimentError(
                f"layout_plan: {name} is a {type(module).__name__}, and only nn.Linear can be cut"
            )
        layers[name] = module
    if not layers:
        raise ExperimentError(
            f"layout_plan: the model has no module {pattern!r}",
            hint="names are those of model.named_modules()",
        )
    return layers


def _check(name: str, size: int, by: int) -> None:
    if size % by:
        raise ExperimentError(
            f"layout: layer {name} has {size} features, which {by} does not divide",
            hint="choose another number of tensor ranks",
        )


def _cut_norm(name: str, norm: nn.Module, mesh: DeviceMesh, pieces: Pieces) -> None:
    """Give a batch norm the parameters and running statistics of this rank's features."""
    from torch.distributed.tensor import Shard, distribute_tensor

    if not isinstance(norm, GhostBatchNorm):
        raise ExperimentError(
            f"layout_plan: {name} is a {type(norm).__name__}, and channels are those of BatchNorm"
        )
    for kind, parameter in list(norm.named_parameters()):
        pieces.cut(f"{name}.{kind}", 0)
        part = distribute_tensor(parameter.detach(), mesh, [Shard(0)], src_data_rank=None)
        setattr(norm, kind, nn.Parameter(part, requires_grad=parameter.requires_grad))
    for kind, buffer in list(norm.named_buffers()):
        if buffer.dim():
            pieces.cut(f"{name}.{kind}", 0)
            setattr(norm, kind, pieces.part(f"{name}.{kind}", buffer).clone())
