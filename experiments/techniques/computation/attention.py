"""Which kernel computes attention: ``torch.nn.attention.sdpa_kernel``."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.errors import DeviceError
from experiments.techniques.base import Compute, Technique
from workloads import Batch

_BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
_UNAVAILABLE = ("No available kernel", "No viable backend")
"""What torch says where the only kernel that is left cannot be used."""


class Attention(Technique):
    """Compute ``scaled_dot_product_attention`` by ``math``, ``flash``, ``efficient`` or ``cudnn``.

    Attention whose weights have dropout is written out, with random numbers that follow the
    examples, whatever the kernel.
    """

    name = "attention"
    example = "math"
    stacks = False
    why_not_stacked = "a stack of models has attention of its own"
    in_evaluation = True
    of_device = True

    kernel: Literal["math", "flash", "efficient", "cudnn"]

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        with sdpa_kernel(_BACKENDS[self.kernel]):
            try:
                return compute(model, batch)
            except RuntimeError as error:
                if not any(message in str(error) for message in _UNAVAILABLE):
                    raise
                raise DeviceError(
                    f"technique {self.label}: the kernel {self.kernel} cannot be used on "
                    f"{batch[0].device.type} with these shapes and this precision",
                    hint="math works everywhere",
                ) from None
