"""CutMix (Yun et al. 2019, arXiv:1905.04899)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field

from experiments.techniques.data.images import check_images
from experiments.techniques.data.mixing import MixedLabels, drawn_share
from workloads import Batch


class Cutmix(MixedLabels):
    """Put a box of another image into each image, and weigh both labels by area.

    The area's share is 1 - Beta(alpha, alpha) before the box is cut at the edges; its middle is
    uniform, as ``torchvision.transforms.v2.CutMix`` has it. A step has one box, and each image of
    the global batch a partner by a random permutation.
    """

    name = "cutmix"
    of_stored = True

    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def augment(self, batch: Batch, step: int) -> Batch:
        x = batch[0]
        check_images(x, self.label)
        height, width = x.shape[-2:]
        half = 0.5 * math.sqrt(1 - drawn_share(self.alpha))
        column, row = (int(torch.randint(size, ())) for size in (width, height))
        top, bottom = max(row - int(half * height), 0), min(row + int(half * height), height)
        left, right = max(column - int(half * width), 0), min(column + int(half * width), width)
        partner = torch.randperm(len(x)).to(x.device)
        mixed = x.clone()
        mixed[..., top:bottom, left:right] = x[partner][..., top:bottom, left:right]
        area = (bottom - top) * (right - left) / (height * width)
        return self.mixed(mixed, batch, partner, 1 - area)
