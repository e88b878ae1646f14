"""ResNet-8 on CIFAR-10: He et al. 2016, section 4.2, with n = 1 and without batch norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.base import Batch, Classification
from workloads.data import images

PACKAGED = {
    "cifar10-resnet8": ("CIFAR10ResNet8", "ResNet-8 without batch norm on CIFAR-10"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 5

_MEAN = (0.4914, 0.4822, 0.4465)
_DEVIATION = (0.2470, 0.2435, 0.2616)
_PAD = 4


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


class CIFAR10ResNet8(Classification):
    """Widths 16, 32 and 64, biases, global average pooling: 75,050 parameters."""

    target = "validation_error < 0.30"
    dataset = "cifar10"
    model_name = "resnet8"
    version = "1"
    augmented: bool = False
    """Whether training images are shifted by up to 4 pixels and mirrored at random."""

    def data(self) -> Mapping[str, Batch]:
        """45,000 / 5,000 / 10,000 examples: x uint8 (N, 3, 32, 32), y int64 (N,)."""
        return images("cifar10")

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Each channel with mean 0 and deviation 1 over the training set, shape (B, 3, 32, 32)."""
        x = batch[0].float() / 255
        mean = torch.tensor(_MEAN, device=x.device).view(3, 1, 1)
        deviation = torch.tensor(_DEVIATION, device=x.device).view(3, 1, 1)
        return (x - mean) / deviation, *batch[1:]

    @property
    def augments(self) -> bool:
        """The value of the field ``augmented``."""
        return self.augmented

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """A random window of the zero-padded image, mirrored with probability 1/2."""
        return (_shift_and_mirror(batch[0], generator), *batch[1:]) if self.augmented else batch

    def model(self) -> nn.Module:
        """A new model, with the initialization of He et al. 2015 and zero biases."""
        network = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            _Block(16, 16, 1),
            _Block(16, 32, 2),
            _Block(32, 64, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
        for module in network.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                gain = nn.init.calculate_gain("relu" if isinstance(module, nn.Conv2d) else "linear")
                fan_in = module.weight[0].numel()
                nn.init.normal_(module.weight, std=gain / fan_in**0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return network


def _shift_and_mirror(x: Tensor, generator: torch.Generator) -> Tensor:
    """``x``, (B, C, H, W), each image in a window of its own. Three numbers an image are drawn."""
    examples, _, height, width = x.shape
    drawn = torch.rand(examples, 3, generator=generator, device=generator.device).to(x.device)
    offset = (drawn[:, :2] * (2 * _PAD + 1)).long()
    rows = offset[:, :1] + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device).expand(examples, width)
    columns = torch.where(drawn[:, 2:] < 0.5, columns.flip(1), columns) + offset[:, 1:]
    padded = F.pad(x, (_PAD, _PAD, _PAD, _PAD))
    picked = padded.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], height, -1))
