"""Mixup (Zhang, Cissé, Dauphin & Lopez-Paz 2018, arXiv:1710.09412)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.errors import ExperimentError
from experiments.techniques.data.mixing import MixedLabels, drawn_share
from workloads import Batch


class Mixup(MixedLabels):
    """Train on means of two examples and of their labels, whose weights are Beta(alpha, alpha).

    In each step there is one weight, and each example of the global batch has a partner by a random
    permutation; ``torchvision.transforms.v2.MixUp`` takes the next one of the batch.
    """

    name = "mixup"

    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def augment(self, batch: Batch, step: int) -> Batch:
        x = batch[0]
        if not x.is_floating_point():
            raise ExperimentError(
                f"technique {self.label} takes means of inputs, and these are whole numbers",
                hint="leave it out for tokens; a workload's transform makes floats of images",
            )
        share = drawn_share(self.alpha)
        partner = torch.randperm(len(x)).to(x.device)
        return self.mixed(share * x + (1 - share) * x[partner], batch, partner, share)
