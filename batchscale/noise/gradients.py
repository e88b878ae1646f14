"""Squared norms of gradients: plain, preconditioned, and of single examples without the gradients.

A layer's input and the gradient of its output determine its parameters' gradient of each example
(arXiv:2411.00999). An example may be a sequence: the sum over its tokens is taken before the norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def squared(gradient: Tensor) -> Tensor:
    """|g|², summed in float64."""
    gradient = gradient.detach()
    if gradient.is_sparse:
        gradient = gradient.coalesce().values()
    return torch.linalg.vector_norm(gradient, dtype=torch.float64).square()


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a ``DTensor``; another tensor itself."""
    shard: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def adam_divisor(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor | None:
    """sqrt(second moment) + eps of a parameter, as Adam's next update would divide by it but for
    the step's own gradient; None before its first update."""
    if not state:
        return None
    moment = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if moment is None or moment.shape != state.get("exp_avg", moment).shape:
        raise ValueError("optimizer: its state has no exp_avg_sq of each element, as Adam's has")
    correction = 1 - group["betas"][1] ** float(state["step"])
    return (wide(moment) / correction).sqrt() + float(group["eps"])


def wide(tensor: Tensor) -> Tensor:
    """It, in float32 if its type is narrower."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _sums(summed: Tensor) -> Tensor:
    """Squares summed over all but the first dimension."""
    return summed.double().square().flatten(1).sum(1)


def _linear(layer: nn.Linear, x: Tensor, out: Tensor) -> Tensor:
    x = wide(x).reshape(len(x), -1, layer.in_features)
    out = wide(out).reshape(len(out), -1, layer.out_features)
    norms = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if layer.weight.requires_grad:
        # |Σ_t out_t x_tᵀ|² from the products of all pairs of tokens, or from the sum if smaller.
        if 2 * x.shape[1] ** 2 <= layer.in_features * layer.out_features:
            norms += ((x @ x.mT).double() * (out @ out.mT)).sum((1, 2))
        else:
            norms += _sums(out.mT @ x)
    if layer.bias is not None and layer.bias.requires_grad:
        norms += _sums(out.sum(1))
    return norms


def _embedding(layer: nn.Embedding, x: Tensor, out: Tensor) -> Tensor:
    """A row of the table gets the sum over the tokens of an example that read it."""
    out = wide(out).flatten(0, -2)
    if layer.padding_idx is not None:
        out = out * (x.flatten() != layer.padding_idx)[:, None]
    example = torch.arange(len(x), device=x.device).view(-1, *[1] * (x.ndim - 1))
    rows, place = torch.unique(x + layer.num_embeddings * example, return_inverse=True)
    summed = out.new_zeros(len(rows), out.shape[-1]).index_add_(0, place.flatten(), out)
    norms = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    return norms.index_add_(0, rows // layer.num_embeddings, _sums(summed))


def _norm(layer: nn.LayerNorm | nn.RMSNorm, x: Tensor, out: Tensor) -> Tensor:
    shape, x = list(layer.normalized_shape), wide(x)
    normalized = (
        F.layer_norm(x, shape, eps=layer.eps)
        if isinstance(layer, nn.LayerNorm)
        else F.rms_norm(x, shape, eps=layer.eps)
    ).reshape(len(x), -1, *shape)
    out = wide(out).reshape(normalized.shape)
    norms = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for parameter, terms in ((layer.weight, out * normalized), (getattr(layer, "bias", None), out)):
        if parameter is not None and parameter.requires_grad:
            norms += _sums(terms.sum(1))
    return norms


_LAYERS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Tensor]] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _norm,
    nn.RMSNorm: _norm,
}


def of_examples(layer: nn.Module, x: Tensor, out: Tensor) -> Tensor:
    """The squared norm of the gradient of ``layer``'s parameters, for each example.

    Args:
        x: the layer's input, the examples along its first dimension.
        out: the gradient of its output, in the output's shape.
    """
    with torch.autocast(x.device.type, enabled=False):
        return _LAYERS[type(layer)](layer, x, out)


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of ``model`` with parameters to train, by name.

    Raises:
        ValueError: a module for which there is no formula, or a parameter of two modules.
    """
    layers: dict[str, nn.Module] = {}
    owners: dict[Tensor, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"per_example: {name} mixes the examples of a batch")
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        odd = getattr(module, "scale_grad_by_freq", False) or getattr(module, "max_norm", None)
        if own and (type(module) not in _LAYERS or odd):
            raise ValueError(
                f"per_example: no formula for {name or 'the model itself'} "
                f"({type(module).__name__}): leave per_example out, and split each batch"
            )
        for parameter in own:
            if owners.setdefault(parameter, name) != name:
                raise ValueError(f"per_example: {owners[parameter]} and {name} share a parameter")
            layers[name] = module
    return layers
