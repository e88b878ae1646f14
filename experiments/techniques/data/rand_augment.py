"""RandAugment (Cubuk et al. 2020, arXiv:1909.13719): ``torchvision.transforms.v2.RandAugment``."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.techniques.base import Technique
from experiments.techniques.data.images import check_images
from workloads import Batch


class RandAugment(Technique):
    """Change each image by some random operations of one magnitude, from 0 to 30."""

    name = "rand_augment"
    of_stored = True

    magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    operations: Annotated[int, Field(ge=1)] = 2
    """How many in a row."""

    def augment(self, batch: Batch, step: int) -> Batch:
        from torchvision.transforms import v2

        check_images(batch[0], self.label, of_bytes=True)
        change = v2.RandAugment(num_ops=self.operations, magnitude=self.magnitude)
        return (torch.stack([change(image) for image in batch[0]]), *batch[1:])
