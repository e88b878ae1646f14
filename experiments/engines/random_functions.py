"""The functions of torch that draw, by numbers that follow the example.

Each takes the hashes of the pass (``ExampleRandomness``), the function that it replaces, and the
arguments of that function.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.counter_random import BITS, uniform_of


class Hashes(AbstractContextManager[Any], Protocol):
    """Random bits of a forward pass; while it is entered, functions that draw are replaced."""

    def hashes(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """64 random bits for each entry of ``shape``, int64."""

    def kept(self, shape: Sequence[int], threshold: int, scale: float, like: Tensor) -> Tensor:
        """``scale`` where the upper 24 bits are at least ``threshold``, else 0."""


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Numbers of 24 bits are computed in this type: those of 16 bits round them, or overflow."""
    return torch.promote_types(dtype, torch.float32)


def _uniform(hashed: Hashes, like: Tensor) -> Tensor:
    """In [0, 1), of the shape of ``like``, in float32 at least."""
    return uniform_of(hashed.hashes(like.shape, like.device), _wide(like.dtype))


def _half_open(hashed: Hashes, like: Tensor) -> Tensor:
    """In [0, 1) in the type of ``like`` too, which would round the last ones up."""
    values = _uniform(hashed, like)
    exact = values.dtype == like.dtype
    return values if exact else values.clamp(max=1 - torch.finfo(like.dtype).eps / 2)


def _normal(hashed: Hashes, like: Tensor) -> Tensor:
    """By Box and Muller (1958) from one hash: 24 bits for the radius, 24 others for the angle."""
    z, dtype = hashed.hashes(like.shape, like.device), _wide(like.dtype)
    first = ((z >> (64 - BITS)) & (2**BITS - 1)).to(dtype) + 0.5
    second = (z & (2**BITS - 1)).to(dtype)
    radius = (-2 * (first * 2.0**-BITS).log()).sqrt()
    return radius * (second * (2 * math.pi * 2.0**-BITS)).cos()


def _exponential(hashed: Hashes, like: Tensor, lambd: float = 1.0) -> Tensor:
    """Over 0, as torch's: its logarithm is taken."""
    return -torch.log1p(-_uniform(hashed, like).clamp(min=2.0**-BITS)) / lambd


def _kept(
    hashed: Hashes, shape: Sequence[int], p: float, like: Tensor, scale: float = 1.0
) -> Tensor:
    """``scale`` with probability 1 - p, else 0."""
    threshold = min(round(p * 2**BITS), 2**BITS - 1)
    return hashed.kept(shape, threshold, scale, like)


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(hashed: Hashes, x: Tensor, p: float, inplace: bool, shape: Sequence[int]) -> Tensor:
    _check_probability(p)
    mask = _kept(hashed, shape, p, x, 1 / (1 - p) if p < 1 else 0.0)
    return x.mul_(mask) if inplace else x * mask


def _dropout(
    hashed: Hashes,
    func: Any,  # noqa: ARG001
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    return _dropped(hashed, input, p, inplace, input.shape) if training and p > 0 else input


def _channels(dims: int) -> Callable[..., Tensor]:
    """Dropout of whole channels, as ``F.dropout1d`` … ``dropout3d`` have it."""

    def dropout(
        hashed: Hashes,
        func: Any,  # noqa: ARG001
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or p == 0:
            return input
        lead = input.dim() - dims
        return _dropped(hashed, input, p, inplace, (*input.shape[:lead], *[1] * dims))

    return dropout


def _alpha_dropout(
    hashed: Hashes,
    func: Any,
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Klambauer et al. 2017 (arXiv:1706.02515), §3: mean and variance stay 0 and 1."""
    if not training or p == 0:
        return input
    _check_probability(p)
    features = func is F.feature_alpha_dropout
    shape = (*input.shape[:2], *[1] * (input.dim() - 2)) if features else input.shape
    low = -1.7580993408473766
    scale = 1 / math.sqrt((low**2 * p + 1) * (1 - p)) if p < 1 else 0.0
    mask = _kept(hashed, shape, p, input)
    result = (input * mask + low * (1 - mask)) * scale - low * p * scale
    return input.copy_(result) if inplace else result


def _attention(
    hashed: Hashes,
    func: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch's documentation writes it out, with dropout of the attention weights."""
    if dropout_p == 0:
        return func(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip
    length, size = query.shape[-2], key.shape[-2]
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    weights = query @ key.transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        seen = torch.ones(length, size, dtype=torch.bool, device=query.device).tril()
        weights = weights.masked_fill(~seen, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        weights = weights.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        weights = weights + attn_mask
    weights = weights.softmax(-1)
    return _dropped(hashed, weights, dropout_p, False, weights.shape) @ value


def _without_dispatch(function: Any) -> Any:
    """The body of ``function`` of ``torch.nn.functional``: called with a mode active, the original
    would call the mode again."""
    globals_ = {**function.__globals__, "has_torch_function": lambda *_: False}
    globals_ |= {
        name: (lambda *_: False) for name in globals_ if name.startswith("has_torch_function_")
    }
    made = types.FunctionType(function.__code__, globals_, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _composite(function: Any) -> Callable[..., Any]:
    """A function that calls other functions that draw; each of those is replaced."""
    written_out = _without_dispatch(function)

    def run(hashed: Hashes, func: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        with hashed:
            return written_out(*args, **kwargs)

    return run


def _like(draw: Callable[[Hashes, Tensor], Tensor]) -> Callable[..., Tensor]:
    """``torch.rand_like`` and ``randn_like``."""

    def make(hashed: Hashes, func: Any, input: Tensor, **options: Any) -> Tensor:  # noqa: ARG001
        like = torch.empty_like(input, **options)
        return draw(hashed, like).to(like.dtype)

    return make


def _new(draw: Callable[[Hashes, Tensor], Tensor]) -> Callable[..., Tensor]:
    """``torch.rand`` and ``randn``."""

    def make(hashed: Hashes, func: Any, *size: Any, **options: Any) -> Tensor:
        if options.get("generator") is not None:
            return func(*size, **options)
        like = torch.empty(*size, **options)
        return draw(hashed, like).to(like.dtype)

    return make


def _fill(values: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method of a tensor that fills it in place."""

    def fill(hashed: Hashes, func: Any, self: Tensor, *args: Any, **options: Any) -> Tensor:
        if options.get("generator") is not None:
            return func(self, *args, **options)
        return self.copy_(values(hashed, self, *args, **options))

    return fill


def _bernoulli_of(hashed: Hashes, like: Tensor, p: Tensor | float) -> Tensor:
    return (_uniform(hashed, like) < p).to(like.dtype)


def _bernoulli(
    hashed: Hashes, func: Any, input: Tensor, p: float | None = None, **options: Any
) -> Tensor:
    if options.get("generator") is not None:
        return func(input, **options) if p is None else func(input, p, **options)
    return _bernoulli_of(hashed, input, input if p is None else p)


EMPTY = {torch.empty, torch.empty_like, torch.Tensor.new_empty}
"""A function that makes a tensor which is filled in place later."""
REPLACED: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    F.dropout1d: _channels(1),
    F.dropout2d: _channels(2),
    F.dropout3d: _channels(3),
    F.alpha_dropout: _alpha_dropout,
    F.feature_alpha_dropout: _alpha_dropout,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _composite(F.multi_head_attention_forward),
    F.gumbel_softmax: _composite(F.gumbel_softmax),
    torch.dropout: _dropout,
    torch.rand: _new(_half_open),
    torch.randn: _new(_normal),
    torch.rand_like: _like(_half_open),
    torch.randn_like: _like(_normal),
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.Tensor.bernoulli_: _fill(lambda hashed, like, p=0.5: _bernoulli_of(hashed, like, p)),
    torch.Tensor.uniform_: _fill(
        lambda hashed, like, low=0.0, high=1.0, **named: (
            _half_open(hashed, like) * (named.get("to", high) - named.get("from", low))
            + named.get("from", low)
        )
    ),
    torch.Tensor.normal_: _fill(
        lambda hashed, like, mean=0.0, std=1.0: _normal(hashed, like) * std + mean
    ),
    torch.Tensor.exponential_: _fill(_exponential),
}
