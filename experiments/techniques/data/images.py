"""What techniques for images share."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.errors import ExperimentError


def check_images(x: Tensor, label: str, *, of_bytes: bool = False) -> None:
    """
    Args:
        x: a batch of examples.
        label: of the technique, for messages.

    Raises:
        ExperimentError: they are not images, ``(examples, channels, height, width)``, of bytes
            where it says so.
    """
    if x.dim() == 4 and x.shape[1] in (1, 3) and (x.dtype == torch.uint8 or not of_bytes):
        return
    of = " of bytes" if of_bytes else ""
    raise ExperimentError(
        f"technique {label} needs images{of}, of shape (examples, channels, height, width) with 1 "
        f"or 3 channels, and these examples are of {str(x.dtype).removeprefix('torch.')} and shape "
        f"{tuple(x.shape)}",
        hint="a workload that stores images, such as mnist-fc or cifar10-resnet8",
    )
