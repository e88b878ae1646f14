"""ResNet-8 on CIFAR: He et al. 2016, section 4.2, with n = 1 and without batch norm."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.errors import WorkloadError
from workloads.images.cifar import CIFAR
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "cifar10-resnet8": ("CIFAR10ResNet8", "ResNet-8 without batch norm on CIFAR-10"),
    "cifar100-resnet8": ("CIFAR100ResNet8", "ResNet-8 without batch norm on CIFAR-100"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 5


class _Block(nn.Module):
    """Two convolutions beside an identity: average pooling halves it, zero channels widen it."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.stride = stride
        self.widen = after - before

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x)))
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        if self.widen:
            x = F.pad(x, (0, 0, 0, 0, 0, self.widen))
        return F.relu(x + y)


class _ResNet8(CIFAR):
    """Stages of ``width``, 2 ``width`` and 4 ``width`` channels; ``depth`` is 6n + 2 layers."""

    model_name = "resnet8"
    version = "1"
    added_fields = CIFAR.added_fields | {"width", "depth"}
    width: Annotated[int, Field(ge=1)] = 16
    depth: Annotated[int, Field(ge=8)] = 8

    def layout_plan(self) -> LayoutPlan:
        """A pipeline block by block; convolutions are whole."""
        return LayoutPlan(pipeline=("*",))

    def model(self) -> nn.Module:
        """A new model, with the initialization of He et al. 2015 and zero biases.

        Raises:
            WorkloadError: the depth is not 6n + 2.
        """
        blocks, rest = divmod(self.depth - 2, 6)
        if rest:
            raise WorkloadError(
                f"depth {self.depth} of {self.name} is not 6n + 2",
                hint=f"choose {6 * blocks + 2} or {6 * blocks + 8}",
            )
        stages: list[nn.Module] = []
        before = self.width
        for stage in range(3):
            channels = self.width * 2**stage
            for block in range(blocks):
                stages.append(_Block(before, channels, 2 if stage and not block else 1))
                before = channels
        network = nn.Sequential(
            nn.Conv2d(3, self.width, 3, padding=1),
            nn.ReLU(),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(before, self.outputs),
        )
        for module in network.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                gain = nn.init.calculate_gain("relu" if isinstance(module, nn.Conv2d) else "linear")
                fan_in = module.weight[0].numel()
                nn.init.normal_(module.weight, std=gain / fan_in**0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return network


class CIFAR10ResNet8(_ResNet8):
    """Widths 16, 32 and 64, biases, global average pooling: 75,050 parameters."""

    target = "validation_error < 0.30"
    dataset = "cifar10"
    version = "1"


class CIFAR100ResNet8(_ResNet8):
    """The same with 100 outputs: 80,900 parameters. The target is this project's."""

    target = "validation_error < 0.65"
    dataset = "cifar100"
    dataset_classes = 100
    version = "1"
