"""ResNet-18 and VGG-11 on CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from workloads.images.cifar import CIFAR
from workloads.images.networks import RESIDUAL_PLAN, residual_network, vgg11, vgg11_plan
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "cifar10-resnet18": ("CIFAR10ResNet18", "ResNet-18 with ghost batch norm on CIFAR-10"),
    "cifar100-resnet18": ("CIFAR100ResNet18", "ResNet-18 with ghost batch norm on CIFAR-100"),
    "cifar10-vgg11": ("CIFAR10VGG11", "VGG-11 without batch norm on CIFAR-10"),
    "cifar100-vgg11": ("CIFAR100VGG11", "VGG-11 without batch norm on CIFAR-100"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 6


class _ResNet18(CIFAR):
    """The first convolution is 3×3 and nothing is pooled after it. Its batch norm is computed over
    ghost batches: of 32 examples, unless the experiment's ``ghost_batch`` says otherwise."""

    model_name = "resnet18"
    version = "1"
    width: Annotated[int, Field(ge=1)] = 64
    """Channels of the first stage; those of the others are 2, 4 and 8 times as many."""
    depth: int = 18
    """18, 34, 50 or 101."""

    def layout_plan(self) -> LayoutPlan:
        """Its blocks are sharded one by one; a pipeline is cut between them."""
        return RESIDUAL_PLAN

    def model(self) -> nn.Module:
        """A new model: 11,173,962 parameters with 10 classes."""
        return residual_network(self.depth, self.width, self.outputs, small=True)


class CIFAR10ResNet18(_ResNet18):
    """ResNet-18 on CIFAR-10. The target is this project's."""

    target = "validation_error < 0.10"
    dataset = "cifar10"
    version = "1"


class CIFAR100ResNet18(_ResNet18):
    """ResNet-18 on CIFAR-100. The target is this project's."""

    target = "validation_error < 0.40"
    dataset = "cifar100"
    dataset_classes = 100
    version = "1"


class _VGG11(CIFAR):
    """Five poolings leave one pixel of 8 ``width`` channels, which one linear layer classifies."""

    model_name = "vgg11"
    version = "1"
    width: Annotated[int, Field(ge=1)] = 64
    """Channels of the first layer; the last ones have 8 times as many."""

    def layout_plan(self) -> LayoutPlan:
        """A pipeline layer by layer."""
        return vgg11_plan(self.width, small=True)

    def model(self) -> nn.Module:
        """A new model: 9,225,610 parameters with 10 classes."""
        return vgg11(self.width, self.outputs, small=True)


class CIFAR10VGG11(_VGG11):
    """VGG-11 on CIFAR-10. The target is this project's."""

    target = "validation_error < 0.20"
    dataset = "cifar10"
    version = "1"


class CIFAR100VGG11(_VGG11):
    """VGG-11 on CIFAR-100. The target is this project's."""

    target = "validation_error < 0.55"
    dataset = "cifar100"
    dataset_classes = 100
    version = "1"
