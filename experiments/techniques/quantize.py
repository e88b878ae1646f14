"""Quantization of linear layers: during training with straight-through gradients, or after it.

Numbers are rounded to the nearest multiple of a scale, from -m to m with m = 2^(bits-1) - 1
(symmetric, so that zero stays zero): each row of a weight by its largest number over m, and each
example's (or token's) activations likewise, so that no example depends on the others. Rounding has
the gradient 1 (Bengio, Léonard & Courville 2013, arXiv:1308.3432). It is *fake* quantization
(Jacob et al. 2018, arXiv:1712.05877): what is rounded is multiplied in floating point, so that the
metrics are those of the integers and the speed is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Technique
from workloads import Batch


class Quantize(Technique):
    """Round the weights of linear layers to ``bits`` in every forward pass of the training.

    With ``when: after`` training does not see it, and evaluations measure both: ``error`` of the
    trained weights, and ``error_w8`` of those rounded to 8 bits (``error_w4a8``: weights to 4,
    activations to 8). ``activations`` rounds what enters the layers, too. Layers are the modules
    ``nn.Linear`` that the model calls; saved weights are those before rounding.
    """

    name = "quantize"
    example = "8"
    order = 250

    bits: Literal[8, 4]
    activations: Literal[8, 4] | None = None
    when: Literal["training", "after"] = "training"

    def model(self, model: nn.Module) -> nn.Module:
        """
        Raises:
            ExperimentError: the model has no linear layer.
        """
        active = self.when == "training"
        made: dict[nn.Module | None, QuantizedLinear] = {
            module: QuantizedLinear(module, self.bits, self.activations, active=active)
            for module in model.modules()
            if type(module) is nn.Linear
        }
        if model in made:
            return made[model]
        for parent in list(model.modules()):
            for name, child in parent._modules.items():  # one layer may have several names
                if child in made:
                    setattr(parent, name, made[child])
        if not made:
            raise ExperimentError(
                f"technique {self.label}: the model has no module nn.Linear",
                hint="leave it out; convolutions are not quantized",
            )
        return model

    def metrics(
        self,
        metrics: Mapping[str, Any],
        compute: Compute,
        workload: Any,
        model: nn.Module,
        batch: Batch,
    ) -> Mapping[str, Any]:
        if self.when == "training":
            return metrics
        with _rounding(model):
            after = workload.metrics(compute(model, batch), batch)
        suffix = f"w{self.bits}" + (f"a{self.activations}" if self.activations else "")
        return {**metrics, **{f"{name}_{suffix}": value for name, value in after.items()}}


class QuantizedLinear(nn.Linear):
    """Takes the place of a linear layer, whose parameters and names it keeps."""

    def __init__(
        self, replaced: nn.Linear, bits: int, activations: int | None, *, active: bool
    ) -> None:
        """``active``: whether it rounds; ``activations``: to how many bits, or not at all."""
        super().__init__(replaced.in_features, replaced.out_features, bias=False, device="meta")
        self.weight = replaced.weight
        self.bias = replaced.bias
        self.bits, self.activations, self.active = bits, activations, active
        self._forward_hooks.update(replaced._forward_hooks)  # such as those of techniques
        # Without a hook, torch's Transformer layers evaluate the weights and call no module.
        self.register_forward_pre_hook(_called)
        self.train(replaced.training)

    def forward(self, input: Tensor) -> Tensor:
        """As ``nn.Linear``, of rounded numbers."""
        if not self.active:
            return super().forward(input)
        x = input if self.activations is None else rounded(input, self.activations)
        return F.linear(x, rounded(self.weight, self.bits), self.bias)


def _called(*_: Any) -> None:
    pass


def rounded(x: Tensor, bits: int) -> Tensor:
    """``x`` on the grid of its rows, the last dimension; its gradient is that of ``x``."""
    most = 2 ** (bits - 1) - 1
    values = x.detach()
    largest = values.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest / most, torch.ones_like(largest))
    on_grid = (values / scale).round().clamp(-most, most) * scale
    # Exactly the number on the grid: x - values is zero, and has the gradient 1.
    return on_grid + (x - values)


@contextmanager
def _rounding(model: nn.Module) -> Iterator[None]:
    """Within, all quantized layers of the model round."""
    layers = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    for layer in layers:
        layer.active = True
    try:
        yield
    finally:
        for layer in layers:
            layer.active = False
