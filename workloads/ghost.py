"""Batch norm over ghost batches: the objective does not change with the batch size.

A BatchNorm module normalizes a batch by its own mean and variance, so that the loss of an example
depends on how many others share its batch. A ghost batch norm (Hoffer et al. 2017) normalizes
consecutive groups of G examples, whatever the batch size B, which G must divide.

The running statistics, which evaluation uses, are defined on a *step*: one update
``r ← (1-m)·r + m·s`` with s the mean over all B/G ghost batches of the step of their means (or
unbiased variances). A sum over ghost batches does not know their order, so micro-batches and
workers of whole ghost batches give the same to rounding. (An update per ghost batch, as modules do
it alone, would need them in order, and its memory in steps would shrink as B grows.) Therefore a
training forward only adds to the sums; whoever runs the steps calls ``finish_step`` after each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase

from workloads.errors import WorkloadError

GHOST_BATCH = 32
"""Examples of a ghost batch, unless given."""


class GhostBatchNorm(nn.Module):
    """Takes the place of a BatchNorm module, whose parameters, buffers and names it keeps.

    Input: (B, C) or (B, C, …). In evaluation it is the module it replaced.
    """

    takes_statistics = False
    """Whether it normalizes ghost batches, and adds them to the sums, in evaluation too."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    mean_sum: Tensor
    variance_sum: Tensor
    ghosts: Tensor

    def __init__(self, replaced: _BatchNorm, ghost_batch: int) -> None:
        super().__init__()
        if replaced.running_mean is None or replaced.running_var is None:
            raise WorkloadError(
                "a BatchNorm without running statistics would evaluate with the statistics of "
                "each evaluated batch",
                hint="leave track_running_stats at True",
            )
        self.ghost_batch = ghost_batch
        self.eps = replaced.eps
        self.momentum = replaced.momentum
        self.weight = replaced.weight
        self.bias = replaced.bias
        self.register_buffer("running_mean", replaced.running_mean)
        self.register_buffer("running_var", replaced.running_var)
        self.register_buffer("num_batches_tracked", replaced.num_batches_tracked)
        for name in ("mean_sum", "variance_sum"):
            zero = torch.zeros_like(replaced.running_mean)
            self.register_buffer(name, zero, persistent=False)
        zero = torch.zeros((), dtype=zero.dtype, device=zero.device)
        self.register_buffer("ghosts", zero, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` normalized, its shape unchanged.

        Raises:
            WorkloadError: the ghost batch does not divide the batch.
        """
        channels = (1, -1, *(1 for _ in x.shape[2:]))
        if self.training or self.takes_statistics:
            y = self._normalize_ghosts(x)
        else:
            scale = torch.rsqrt(self.running_var + self.eps)
            y = (x - self.running_mean.view(channels)) * scale.view(channels)
        if self.weight is not None:
            y = y * _here(self.weight).view(channels)
        if self.bias is not None:
            y = y + _here(self.bias).view(channels)
        return y.to(x.dtype)

    def _normalize_ghosts(self, x: Tensor) -> Tensor:
        if x.shape[0] % self.ghost_batch:
            raise WorkloadError(
                f"a batch size of {x.shape[0]} cannot be divided into ghost batches of "
                f"{self.ghost_batch}",
                hint="choose a ghost_batch that divides the batch size, a worker's share and a "
                "micro-batch",
            )
        ghosts = x.shape[0] // self.ghost_batch
        wide = x.to(torch.promote_types(x.dtype, self.running_mean.dtype))  # bfloat16 is too coarse
        places = math.prod(x.shape[2:])
        grouped = wide.reshape(ghosts, self.ghost_batch, x.shape[1], places)
        values = self.ghost_batch * places
        if values == 1:
            raise WorkloadError("a ghost batch of one value a channel has no variance")
        variance, mean = torch.var_mean(grouped, dim=(1, 3), correction=0, keepdim=True)
        with torch.no_grad():
            unbiased = variance.detach().sum(0).flatten() * (values / (values - 1))
            self.mean_sum.add_(mean.detach().sum(0).flatten())
            self.variance_sum.add_(unbiased)
            self.ghosts.add_(ghosts)
        return ((grouped - mean) * torch.rsqrt(variance + self.eps)).reshape(x.shape)

    def extra_repr(self) -> str:
        """Size, ghost batch and constants, as modules print them."""
        return f"{len(self.running_mean)}, ghost_batch={self.ghost_batch}, eps={self.eps}"


def _here(parameter: Tensor) -> Tensor:
    """The parameter, or this rank's channels of one that is cut over several ranks (a DTensor)."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def has_batch_norm(model: nn.Module) -> bool:
    """Whether ``model`` holds a BatchNorm module, converted or not."""
    return any(isinstance(module, (_BatchNorm, GhostBatchNorm)) for module in model.modules())


def convert_batch_norm(model: nn.Module, ghost_batch: int) -> nn.Module:
    """``model`` with every BatchNorm (1d, 2d, 3d, Sync) made a ghost batch norm, in place.

    Parameters stay the same objects under the same names. A module in several places stays one.

    Returns:
        ``model``, or what takes its place if it is a BatchNorm itself.

    Raises:
        WorkloadError: a ghost batch below 1, a lazy BatchNorm, or one without running statistics.
    """
    if ghost_batch < 1:
        raise WorkloadError(f"ghost_batch is {ghost_batch}: it must be at least 1")
    made: dict[int, GhostBatchNorm] = {}

    def replace(module: _BatchNorm) -> GhostBatchNorm:
        if isinstance(module, _LazyNormBase):
            raise WorkloadError(
                "a lazy BatchNorm has no size yet", hint="give BatchNorm its number of channels"
            )
        if id(module) not in made:
            ghost = GhostBatchNorm(module, ghost_batch)
            ghost._forward_hooks.update(module._forward_hooks)  # such as those of techniques
            made[id(module)] = ghost.train(module.training)
        return made[id(module)]

    if isinstance(model, _BatchNorm):
        return replace(model)
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if isinstance(child, _BatchNorm):
                setattr(module, name, replace(child))
    return model


def finish_step(
    model: nn.Module,
    all_reduce: Callable[[Tensor], object] | None = None,
    momentum: float | None = None,
) -> None:
    """Bring the running statistics up to date after a step, and empty the sums.

    ``all_reduce`` sums a tensor over the workers in place; it is called with each sum.
    ``momentum``: that of this update, in the place of the modules' own.
    """
    for module in model.modules():
        if isinstance(module, GhostBatchNorm):
            sums = (module.mean_sum, module.variance_sum, module.ghosts)
            if all_reduce is not None:
                for tensor in sums:
                    all_reduce(tensor)
            module.num_batches_tracked.add_(1)
            count = module.ghosts.clamp(min=1)
            share = module.momentum if momentum is None else momentum
            if share is None:  # as torch has it: the plain average over all steps
                weight = module.num_batches_tracked.to(count).reciprocal()
            else:
                weight = torch.full_like(count, share)
            weight = weight * (module.ghosts > 0)
            module.running_mean.lerp_(module.mean_sum / count, weight)
            module.running_var.lerp_(module.variance_sum / count, weight)
            for tensor in sums:
                tensor.zero_()
