"""Random shifts and mirror images, as they are usual for CIFAR-10 (He et al. 2016)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch.nn import functional as F

from experiments.techniques.base import Technique
from experiments.techniques.data.images import check_images
from workloads import Batch


class Augment(Technique):
    """Shift each image by up to ``strength`` of its side, and mirror it at random.

    What is shifted in is 0. Each image is shifted and mirrored by itself, after what the workload's
    own ``augment`` does.
    """

    name = "augment"
    of_stored = True

    strength: Annotated[float, Field(ge=0, le=1)] = 0.125
    """0.125 is 4 of 32 pixels."""
    mirror: bool = True
    """Left and right; not for digits."""

    def augment(self, batch: Batch, step: int) -> Batch:
        x = batch[0]
        check_images(x, self.label)
        examples, channels, height, width = x.shape
        drawn = torch.rand(examples, 3).to(x.device)
        pads = [round(self.strength * side) for side in (height, width)]
        offsets = [(drawn[:, i] * (2 * pad + 1)).long() for i, pad in enumerate(pads)]
        rows = offsets[0][:, None] + torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device).expand(examples, width)
        if self.mirror:
            columns = torch.where(drawn[:, 2:] < 0.5, columns.flip(1), columns)
        columns = columns + offsets[1][:, None]
        padded = F.pad(x, (pads[1], pads[1], pads[0], pads[0]))
        across = (-1, channels, -1, padded.shape[3])
        picked = padded.gather(2, rows[:, None, :, None].expand(across))
        picked = picked.gather(3, columns[:, None, None, :].expand(-1, channels, height, -1))
        return (picked, *batch[1:])
