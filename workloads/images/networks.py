"""torchvision's networks at any width, for large and for small images."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from workloads.data import torchvision_module
from workloads.errors import WorkloadError, nearest
from workloads.layout_plan import LayoutPlan

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Depth -> blocks of each stage (He et al. 2016, table 1); from 50 on they are bottlenecks."""
_STEM, _LAYERS = ("conv1", "bn1", "relu", "maxpool"), ("layer1", "layer2", "layer3", "layer4")
_VGG11 = (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M")
"""Configuration A of Simonyan & Zisserman 2015, in units of the first layer's channels."""


def residual_network(depth: int, width: int, outputs: int, *, small: bool = False) -> nn.Module:
    """torchvision's ResNet of that depth, with batch norm.

    Args:
        depth: 18, 34, 50 or 101.
        width: channels of the first stage, and of the first convolution; 64 is torchvision's.
        small: for images of 32×32 pixels: a first convolution of 3×3 that keeps the size, and no
            pooling after it.

    Raises:
        WorkloadError: another depth.
    """
    if depth not in _BLOCKS:
        raise WorkloadError(
            f"a ResNet of depth {depth} is not known", hint=nearest(str(depth), map(str, _BLOCKS))
        )
    resnet = torchvision_module("models.resnet")
    network: nn.Module = _scaled(width)(
        resnet.BasicBlock if depth < 50 else resnet.Bottleneck,
        list(_BLOCKS[depth]),
        num_classes=outputs,
    )
    if small or width != 64:
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        first = nn.Conv2d(3, width, kernel, stride=stride, padding=padding, bias=False)
        nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
        network.conv1, network.bn1 = first, nn.BatchNorm2d(width)
        network.fc = nn.Linear(width * 8 * (1 if depth < 50 else 4), outputs)
    if small:
        network.maxpool = nn.Identity()
    return network


@functools.cache
def _scaled(width: int) -> Any:
    """The class ResNet with ``width`` channels where torchvision's has 64. Its ``forward`` passes
    over layers that it does not have, as a stage of a pipeline."""
    resnet: Any = torchvision_module("models.resnet")

    class Scaled(resnet.ResNet):
        def _make_layer(self, block: Any, planes: int, *rest: Any, **options: Any) -> nn.Module:
            if planes == 64:
                self.inplanes = width
            stage: nn.Module = super()._make_layer(block, planes // 64 * width, *rest, **options)
            return stage

        def _forward_impl(self, x: Tensor) -> Tensor:
            for name in (*_STEM, *_LAYERS, "avgpool"):
                layer = getattr(self, name)
                x = x if layer is None else layer(x)
            return x if self.fc is None else self.fc(x.flatten(1))

    return Scaled


RESIDUAL_PLAN = LayoutPlan(
    blocks=("layer?.*",), pipeline=(_STEM, *(f"{name}.*" for name in _LAYERS), ("avgpool", "fc"))
)
"""How ``residual_network`` may be cut: blocks are sharded one by one, and a pipeline is cut between
them; convolutions are whole."""


def vgg11_plan(width: int, *, small: bool = False) -> LayoutPlan:
    """How ``vgg11`` may be cut: into stages of layers, and for large images the classifier, which
    has 119 of its 133 million weights in two layers."""
    if small:
        return LayoutPlan(pipeline=("features.*", "flatten", "classifier"))
    return LayoutPlan(
        pipeline=("features.*", "avgpool", "flatten", "classifier.*"),
        columns={"classifier.0": 1},
        rows=("classifier.3",),
        multiples={"hidden features": 64 * width},
    )


def vgg11(width: int, outputs: int, *, dropout: float = 0.5, small: bool = False) -> nn.Module:
    """torchvision's VGG-11 without batch norm.

    Args:
        width: channels of the first layer; 64 is torchvision's.
        dropout: of the two hidden fully connected layers.
        small: for images of 32×32 pixels: one linear layer in place of three.
    """
    # torchvision's class would initialize 123 million weights of a classifier first.
    vgg = torchvision_module("models.vgg")
    features = vgg.make_layers([n if n == "M" else width * int(n) for n in _VGG11])
    hidden = 64 * width
    classifier: nn.Module = nn.Sequential(
        nn.Linear(8 * width * 49, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(hidden, outputs),
    )
    layers = {"features": features, "avgpool": nn.AdaptiveAvgPool2d(7), "flatten": nn.Flatten()}
    if small:
        del layers["avgpool"]
        classifier = nn.Linear(8 * width, outputs)
    network = nn.Sequential(OrderedDict({**layers, "classifier": classifier}))
    for module in network.modules():  # as torchvision initializes it
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return network
