"""In which numbers a model is trained: the types of its weights and of its forward passes.

| precision | weights | forward and backward pass |
|---|---|---|
| ``float32`` | float32 | float32 |
| ``float64`` | float64 | float64 |
| ``tf32`` | float32 | float32, whose matrix products have 10 bits of mantissa (GPU) |
| ``bfloat16`` | float32 | autocast to bfloat16 (Micikevicius et al. 2018, arXiv:1710.03740) |
| ``float16`` | float32 | autocast to float16, with loss scaling |
| ``bfloat16_weights`` | float32 masters | bfloat16, of copies of the weights in bfloat16 |

With loss scaling (``torch.amp.GradScaler``) the loss is multiplied before the backward pass, so
that small gradients are not rounded to zero. A step whose gradient is not finite is skipped, and
the factor halved; the trial counts such steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from experiments.errors import DeviceError, ExperimentError, nearest

_WEIGHTS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "tf32": torch.float32,
    "bfloat16": torch.float32,
    "float16": torch.float32,
    "bfloat16_weights": torch.float32,
}
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """That of a study on a device."""

    name: str
    device: torch.device

    @classmethod
    def of(cls, technique: Mapping[str, Any], device: str) -> Precision:
        """The precision of ``Study.technique``.

        Raises:
            ExperimentError: there is none of that name.
            DeviceError: the device does not have it.
        """
        name = str(technique.get("precision", "float32"))
        if name not in _WEIGHTS:
            raise ExperimentError(f"unknown precision {name!r}", hint=nearest(name, _WEIGHTS))
        precision = cls(name=name, device=torch.device(device))
        precision._check()
        return precision

    def _check(self) -> None:
        if self.name == "tf32" and self.device.type != "cuda":
            raise DeviceError(
                f"precision tf32 is of Nvidia's GPUs, and this device is {self.device.type}",
                hint="precision: float32",
            )
        if self.name == "float16" and not _multiplies(torch.float16, self.device):
            raise DeviceError(
                f"precision float16: torch cannot multiply matrices of float16 on this "
                f"{self.device.type}",
                hint="precision: bfloat16",
            )

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and of the data."""
        return _WEIGHTS[self.name]

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled."""
        return self.name == "float16"

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Within, a forward pass has its type."""
        if self.name in _AUTOCAST:
            return torch.autocast(self.device.type, _AUTOCAST[self.name])
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def products(self) -> Iterator[None]:
        """Within, products of float32 on a GPU are in TF32 if the precision is so named."""
        matmul: Any = torch.backends.cuda.matmul
        before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.name == "tf32"
        try:
            yield
        finally:
            matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _multiplies(dtype: torch.dtype, device: torch.device) -> bool:
    x = torch.ones(2, 2, dtype=dtype, device=device)
    try:
        return bool((x @ x).isfinite().all())
    except RuntimeError:
        return False
