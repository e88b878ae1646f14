"""ReLU multilayer perceptrons on three sets of 8×8 images, small enough for sweeps in minutes.

scikit-learn's digits are 32×32 bitmaps whose 4×4 blocks were counted. MNIST and Fashion-MNIST are
brought to the same size alike: a border of two pixels, then the mean of each 4×4 block.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import nn
from torch.nn import functional as F

from workloads.base import Batch
from workloads.data import images
from workloads.digits import splits
from workloads.fc import perceptron, perceptron_plan
from workloads.images.base import ImageClassification
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "digits-fc": ("DigitsFC", "ReLU MLP of the given `widths` on scikit-learn's digits"),
    "mnist8-fc": ("MNIST8FC", "ReLU MLP of the given `widths` on MNIST at 8×8 pixels"),
    "fashion-mnist8-fc": ("FashionMNIST8FC", "the same on Fashion-MNIST at 8×8 pixels"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 2


@functools.cache
def pooled(name: str) -> dict[str, Batch]:
    """The splits of an image set of 28×28 pixels: x float32 (N, 64) in [0, 1], y int64 (N,)."""
    return {
        split: (F.avg_pool2d(F.pad(x.float(), (2, 2, 2, 2)), 4).flatten(1) / 255, y)
        for split, (x, y) in images(name).items()
    }


class _Images8x8FC(ImageClassification):
    """``widths`` are those of the hidden layers; ``subset`` is how many of the training examples
    are used (the first ones of the split, which is in random order, after ``train_share`` and
    ``classes``), by default all."""

    model_name = "fc"
    version = "1"
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (64,)
    subset: Annotated[int, Field(ge=10)] | None = None

    def layout_plan(self) -> LayoutPlan | None:
        """Hidden layers in pairs."""
        return perceptron_plan(self.widths)

    def model(self) -> nn.Module:
        """A new model."""
        return perceptron(64, self.widths, self.outputs)

    def data(self) -> Mapping[str, Batch]:
        """1,297 / 500 digits or 55,000 / 5,000 / 10,000 others: x float32 (N, 64), y int64 (N,)."""
        name = self.dataset.removesuffix("-8x8")
        parts = self.subsets(splits() if name == "digits" else pooled(name))
        if self.subset is None:
            return parts
        return {**parts, "train": tuple(part[: self.subset] for part in parts["train"])}


class DigitsFC(_Images8x8FC):
    """On scikit-learn's digits, 64-64-10 by default: 4,810 parameters."""

    target = "validation_error < 0.04"
    dataset = "digits"
    version = "1"


class MNIST8FC(_Images8x8FC):
    """On MNIST at 8×8 pixels."""

    target = "validation_error < 0.06"
    dataset = "mnist-8x8"
    version = "1"


class FashionMNIST8FC(_Images8x8FC):
    """On Fashion-MNIST at 8×8 pixels."""

    target = "validation_error < 0.2"
    dataset = "fashion-mnist-8x8"
    version = "1"
