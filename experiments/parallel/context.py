"""Context parallelism: each rank has a share of the tokens everywhere, in attention too.

The rank's queries attend to the keys and values of all tokens, which are gathered in the forward
pass and whose gradients are summed and scattered in the backward pass, as in Llama 3 (Dubey et al.
2024, arXiv:2407.21783, §3.3.2). Not torch's ``context_parallel``, which on CPU ranks computes no
causal attention (torch 2.14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.parallel.dimension import Dimension, undivided_tokens
from experiments.parallel.pieces import Pieces
from experiments.parallel.shard import modules_named
from workloads import LayoutPlan, TokenShare

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Context(Dimension):
    """Each rank's gradients, those of embeddings and of the output layer too, are its tokens' part
    of the sum, which ``Composed`` adds up together with that over the data ranks."""

    name = "context"
    summary = "each rank holds the whole model and trains a share of the tokens of each sequence"
    order = 25

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        if plan is None or plan.sequence is None or not plan.attention:
            return (
                "its layout_plan names no attention over tokens that ranks may share",
                "layout: {shard: …} and data fit any model",
            )
        for other in ("tensor", "sequence", "pipeline"):
            if other in sizes:
                return (
                    f"context cannot be combined with {other}",
                    "layout: {data: 2, context: 2}, or {shard: 2, context: 2}",
                )
        return undivided_tokens(plan, cls.name, sizes[cls.name])

    def apply(
        self,
        model: nn.Module,
        plan: LayoutPlan | None,
        mesh: DeviceMesh,
        pieces: Pieces,  # noqa: ARG002
    ) -> nn.Module:
        assert plan is not None
        assert plan.sequence is not None
        group = mesh[self.name].get_group()
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        each = plan.sequence.length // ranks
        share = TokenShare(start=rank * each, gather=lambda x: _Gathered.apply(x, group))

        def cut(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return (given[0].narrow(1, share.start, each), *given[1:])

        def whole(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_Whole.apply(given[0], group), *given[1:])

        for name, hook in ((plan.sequence.first, cut), (plan.sequence.after, whole)):
            model.get_submodule(name).register_forward_pre_hook(hook)
        for module in attention(model, plan):
            setattr(module, "tokens", share)  # noqa: B010 - torch annotates it as a Tensor
        return model


def attention(model: nn.Module, plan: LayoutPlan) -> list[nn.Module]:
    """The modules that get a ``TokenShare``.

    Raises:
        ExperimentError: the model has none of a name, or it has no place for it.
    """
    made: list[nn.Module] = []
    for pattern in plan.attention:
        modules = modules_named(model, (pattern,))
        if not modules:
            raise ExperimentError(
                f"layout_plan: the model has no module {pattern!r}",
                hint="names are those of model.named_modules()",
            )
        for name, module in modules.items():
            if not hasattr(module, "tokens"):
                raise ExperimentError(
                    f"layout_plan: {name} has no attribute tokens, which context parallelism sets",
                    hint="batchscale.TokenShare says what attention does with it",
                )
        made += modules.values()
    return made


def _all_gather(part: Tensor, group: dist.ProcessGroup, dim: int) -> Tensor:
    """The parts of all ranks, one after the other along ``dim``."""
    part = part.contiguous()
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, part, group=group)
    return torch.cat(parts, dim)


class _Gathered(torch.autograd.Function):
    """(…, tokens of a rank, d) -> (…, tokens, d). Every rank uses all of them: the gradient of a
    rank's is the sum of what all say."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_gather(part, group, -2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        parts = gradients[0].chunk(dist.get_world_size(ctx.group), -2)
        part = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
        dist.reduce_scatter(part, [each.contiguous() for each in parts], group=ctx.group)
        return part, None


class _Whole(torch.autograd.Function):
    """(examples, tokens of a rank, …) -> (examples, tokens, …). Every rank computes the loss of
    all tokens, and its backward pass begins with one part of it of as many as there are ranks
    (``Composed``); of its own tokens this rank then has the whole gradient."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group, ctx.each = group, part.shape[1]
        return _all_gather(part, group, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        start = dist.get_rank(ctx.group) * ctx.each
        ranks = dist.get_world_size(ctx.group)
        return gradients[0].narrow(1, start, ctx.each) * ranks, None
