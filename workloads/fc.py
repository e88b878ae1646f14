"""The FC-a-b-c family on MNIST: plain ReLU multilayer perceptrons (Shallue et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field
from torch import nn

from workloads.base import Batch
from workloads.data import images
from workloads.images.base import ImageClassification

PACKAGED = {"mnist-fc": ("MNISTFC", "ReLU MLP of the given `widths` on MNIST")}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 3


def perceptron(inputs: int, widths: Sequence[int], outputs: int = 10) -> nn.Module:
    """A ReLU multilayer perceptron."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class MNISTFC(ImageClassification):
    """FC-1024 by default: 814,090 parameters. ``widths`` are those of the hidden layers."""

    target = "validation_error < 0.03"
    dataset = "mnist"
    model_name = "fc"
    version = "1"
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (1024,)

    def data(self) -> Mapping[str, Batch]:
        """55,000 / 5,000 / 10,000 examples: x uint8 (N, 1, 28, 28), y int64 (N,)."""
        return self.subsets(images("mnist"))

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Pixels in [0, 1], shape (B, 784)."""
        return batch[0].flatten(1).float() / 255, *batch[1:]

    def model(self) -> nn.Module:
        """A new model."""
        return perceptron(28 * 28, self.widths, self.outputs)
