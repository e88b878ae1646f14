"""The Simple CNN of Shallue et al. 2019 on MNIST and Fashion-MNIST.

Convolution 5×5 to 32 channels, pooling, convolution 5×5 to 64, pooling, a layer of 1,024, softmax:
SAME padding, ReLU, no dropout, no batch norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import nn

from workloads.base import Batch
from workloads.data import images
from workloads.images.base import ImageClassification
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "mnist-simple-cnn": ("MNISTSimpleCNN", "two-layer CNN on MNIST"),
    "fashion-mnist-simple-cnn": ("FashionMNISTSimpleCNN", "two-layer CNN on Fashion-MNIST"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 4


class _SimpleCNN(ImageClassification):
    model_name = "simple-cnn"
    version = "1"
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor on the widths 32, 64 and 1,024: 0.5 is the paper's narrow model, 2 its wide one."""

    def data(self) -> Mapping[str, Batch]:
        """55,000 / 5,000 / 10,000 examples: x uint8 (N, 1, 28, 28), y int64 (N,)."""
        return self.subsets(images(self.dataset))

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Pixels in [0, 1], shape (B, 1, 28, 28)."""
        return batch[0].float() / 255, *batch[1:]

    @property
    def _widths(self) -> tuple[int, ...]:
        return tuple(max(1, round(self.scale * width)) for width in (32, 64, 1024))

    def layout_plan(self) -> LayoutPlan:
        """The dense layer, which has nearly all the weights; convolutions are whole. A pipeline
        layer by layer."""
        dense = self._widths[2]
        return LayoutPlan(
            columns={"7": 1}, rows=("9",), multiples={"dense features": dense}, pipeline=("*",)
        )

    def model(self) -> nn.Module:
        """A new model: 3,274,634 parameters at scale 1."""
        first, second, dense = self._widths
        return nn.Sequential(
            nn.Conv2d(1, first, 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * 7 * 7, dense),
            nn.ReLU(),
            nn.Linear(dense, self.outputs),
        )


class MNISTSimpleCNN(_SimpleCNN):
    """The Simple CNN on MNIST."""

    target = "validation_error < 0.01"
    dataset = "mnist"
    version = "1"


class FashionMNISTSimpleCNN(_SimpleCNN):
    """The Simple CNN on Fashion-MNIST."""

    target = "validation_error < 0.10"
    dataset = "fashion-mnist"
    version = "1"
