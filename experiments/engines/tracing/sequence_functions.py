"""Layers on sequences for a stack of models: each operation takes all models at once.

``vmap`` divides attention into one call a model, adds the bias of a linear layer in a pass of its
own, and computes a normalized input again for its gradient. While ``SequenceFunctions`` is
entered, ``linear``, ``layer_norm`` and ``scaled_dot_product_attention`` on sequences, and
``cross_entropy`` after them, are replaced by functions that fold the models into the batch, where
an operation has no weights, or into the batch of a matrix product. Inputs without a sequence
dimension, (examples, features), are left to ``vmap``.

On a CPU a model's numbers do not depend on the other models: each of these kernels treats the
entries of its batch one after the other, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_aten = torch.ops.aten


class SequenceFunctions(TorchFunctionMode):
    """While entered, layers on sequences are the functions of this file."""

    def __init__(self) -> None:
        super().__init__()
        self._sequences = False

    def __torch_function__(
        self, func: Any, types_: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        replacement = _REPLACED.get(func)
        named = dict(kwargs or {})
        if func is F.cross_entropy and self._sequences:
            replacement = _cross_entropy  # of tokens: their logits are the output of such a layer
        if replacement is not None:
            result = replacement(*args, **named)
            if result is not None:
                self._sequences = True
                return result
        return func(*args, **named)


def _all_dense(*tensors: Tensor | None) -> bool:
    kinds = {(t.dtype, t.device) for t in tensors if t is not None}
    return len(kinds) == 1 and next(iter(kinds))[0].is_floating_point


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """``None``: not on sequences, or in mixed precision."""
    if x.dim() < 3 or weight.dim() != 2 or x.numel() == 0 or not _all_dense(x, weight, bias):
        return None
    flat: Tensor = _Linear.apply(x.flatten(0, -2), weight, bias)
    return flat.unflatten(0, x.shape[:-1])


def _layer_norm(
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    shape = tuple(normalized_shape)
    if x.dim() < 3 or len(shape) != 1 or weight is None or bias is None or x.numel() == 0:
        return None
    if not _all_dense(x, weight, bias):
        return None
    flat: Tensor = _LayerNorm.apply(x.flatten(0, -2), weight, bias, eps)[0]
    return flat.unflatten(0, x.shape[:-1])


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    if attn_mask is not None or dropout_p or enable_gqa or query.device.type != "cpu":
        return None
    parts = (query, key, value)
    if any(p.dim() != 4 or p.numel() == 0 for p in parts) or not _all_dense(*parts):
        return None
    if len({(p.shape[:2], p.shape[3]) for p in parts}) > 1 or key.shape != value.shape:
        return None
    mixed: Tensor = _Attention.apply(query, key, value, is_causal, scale)[0]
    return mixed


def _cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    **other: Any,
) -> Tensor | None:
    if reduction != "none" or any(other.values()) or logits.dim() != 2 or logits.numel() == 0:
        return None
    if target.is_floating_point() or not logits.is_floating_point():
        return None
    ignored = target == ignore_index
    each: Tensor = _CrossEntropy.apply(logits, target.masked_fill(ignored, 0))[0]
    return each.masked_fill(ignored, 0)


_REPLACED: dict[Any, Callable[..., Tensor | None]] = {
    F.linear: _linear,
    F.layer_norm: _layer_norm,
    F.scaled_dot_product_attention: _attention,
}


def _stacked(models: int, tensors: Any, dims: Any) -> list[Any]:
    """Each with the models as first dimension; ``None`` and numbers as they are."""
    return [
        t
        if not isinstance(t, Tensor)
        else t.expand(models, *t.shape)
        if dim is None
        else t.movedim(dim, 0)
        for t, dim in zip(tensors, dims, strict=True)
    ]


class _Gradient(torch.autograd.Function):
    """The gradient of one of the functions below, which is not differentiated again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *inputs: Any) -> Any:
        return cls.forward(*_stacked(info.batch_size, inputs, in_dims)), 0


class _Linear(torch.autograd.Function):
    """x (n, in), weight (out, in), bias (out) or None -> (n, out)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return (gradient @ weight, gradient.mT @ x, gradient.sum(0) if ctx.biased else None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        x, weight, bias = _stacked(info.batch_size, inputs, in_dims)
        if bias is None:
            return torch.bmm(x, weight.mT), 0
        return torch.baddbmm(bias[:, None], x, weight.mT), 0


class _LayerNorm(torch.autograd.Function):
    """x (n, width), weight and bias (width) -> (n, width), and what the gradient needs."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
        normalized, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, eps)
        return torch.addcmul(bias, normalized, weight), normalized, mean, rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, _, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, weight, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        x, weight, normalized, mean, rstd = ctx.saved_tensors
        of_x = _LayerNormGradient.apply(gradient * weight, x, mean, rstd)
        return of_x, (gradient * normalized).sum(0), gradient.sum(0), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        x, weight, bias, eps = _stacked(info.batch_size, inputs, in_dims)
        made = _LayerNorm.forward(x, weight[:, None], bias[:, None], eps)
        return made, (0, 0, 0, 0)


class _LayerNormGradient(_Gradient):
    """The gradient of x; its kernel treats each row by itself."""

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        of_x: Tensor = _aten.native_layer_norm_backward(
            gradient, x, x.shape[-1:], mean, rstd, None, None, [True, False, False]
        )[0]
        return of_x


class _Attention(torch.autograd.Function):
    """query, key, value (examples, heads, length, size) -> (examples, heads, length, size), and the
    log sums that the gradient needs; torch's flash kernel."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: Any) -> Any:
        return _aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        query, key, value, ctx.causal, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(query, key, value, *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        made = _AttentionGradient.apply(gradient, *ctx.saved_tensors, ctx.causal, ctx.scale)
        return *made, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        made = _Attention.forward(*_folded(info.batch_size, inputs, in_dims))
        return _unfolded(info.batch_size, made), (0, 0)


class _AttentionGradient(_Gradient):
    """The gradients of query, key and value."""

    @staticmethod
    def forward(
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mixed: Tensor,
        log_sums: Tensor,
        causal: bool,
        scale: Any,
    ) -> Any:
        return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, query, key, value, mixed, log_sums, 0.0, causal, scale=scale
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        made = _AttentionGradient.forward(*_folded(info.batch_size, inputs, in_dims))
        return _unfolded(info.batch_size, made), (0, 0, 0)


class _CrossEntropy(torch.autograd.Function):
    """logits (n, classes), target (n) -> losses (n), and the logarithms of the probabilities."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor) -> Any:
        logs = torch.log_softmax(logits, -1)
        return logs.gather(-1, target[..., None])[..., 0].neg(), logs

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        return _CrossEntropyGradient.apply(gradient, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _CrossEntropy.forward(*_stacked(info.batch_size, inputs, in_dims)), (0, 0)


class _CrossEntropyGradient(_Gradient):
    """gradient · (probability - 1 for the target, else gradient · probability)."""

    @staticmethod
    def forward(gradient: Tensor, logs: Tensor, target: Tensor) -> Tensor:
        of_target = torch.full_like(gradient, -1.0)[..., None]
        difference = logs.exp().scatter_add_(-1, target[..., None], of_target)
        return difference.mul_(gradient[..., None])


def _folded(models: int, tensors: Any, dims: Any) -> list[Any]:
    """The models as the slower part of the first dimension of each."""
    stacked = _stacked(models, tensors, dims)
    return [t.flatten(0, 1) if isinstance(t, Tensor) else t for t in stacked]


def _unfolded(models: int, tensors: Any) -> tuple[Tensor, ...]:
    return tuple(t.unflatten(0, (models, -1)) for t in tensors)
