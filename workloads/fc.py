"""The FC-a-b-c family on MNIST: plain ReLU multilayer perceptrons (Shallue et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field
from torch import nn

from workloads.base import Batch
from workloads.data import images
from workloads.images.base import ImageClassification
from workloads.layout_plan import LayoutPlan

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


def perceptron_plan(widths: Sequence[int]) -> LayoutPlan | None:
    """Hidden layers in pairs: every other one is cut by its outputs, the next layer by its inputs.

    ``None``: there is no hidden layer.
    """
    cut = range(0, len(widths), 2)
    if not widths:
        return None
    return LayoutPlan(
        columns={str(2 * i): 1 for i in cut},
        rows=tuple(str(2 * i + 2) for i in cut),
        multiples={f"widths[{i}]": widths[i] for i in cut},
        pipeline=("*",),
    )


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

    def layout_plan(self) -> LayoutPlan | None:
        """Hidden layers in pairs."""
        return perceptron_plan(self.widths)

    def model(self) -> nn.Module:
        """A new model."""
        return perceptron(28 * 28, self.widths, self.outputs)
