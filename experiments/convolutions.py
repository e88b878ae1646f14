"""How a CPU computes convolutions fastest: with their channels last in memory, on few examples at a
time, whose activations the processor's cache holds.

Both have been measured on one core (``benchmarks/images.py``). Models whose layers have more than
``_CHANNELS`` channels gain from neither: the weights of a layer are then what has to be moved. On
an H200 channels last made steps of ResNet-8 in bfloat16 1.18 times as fast.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from experiments.plan import Trial
from experiments.training.study_context import StudyContext

_CHANNELS = 256
"""A step with channels last took 0.80 times as long for ResNet-8, 0.91 times for its fourfold width
(256 channels), 1.15 to 1.3 times for VGG-11, and 0.97 to 1.04 times for ResNet-18 (512)."""


def narrow(model: nn.Module, device: torch.device) -> bool:
    """Whether ``model`` consists of convolutions that gain on ``device``."""
    channels = [max(each.in_channels, each.out_channels) for each in _convolutions(model)]
    return device.type == "cpu" and 0 < max(channels, default=0) <= _CHANNELS


def accepts_channels_last(context: StudyContext, model: nn.Module, trial: Trial) -> bool:
    """Whether ``model`` gains, and computes with its channels last: ``x.view`` of a flat image
    raises then. ``model`` takes a training step without an update, and is of no further use."""
    tensor_cores = context.device.type == "cuda" and context.precision.name == "bfloat16"
    if not (narrow(model, context.device) or tensor_cores) or context.layout.model_ranks > 1:
        return False
    workload, batch = context.workload_of(trial), context.small_batch()
    with contextlib.suppress(Exception), torch.random.fork_rng(), context.autocast():
        keep_channels_last(model.train())
        workload.loss(workload.forward(model, batch), batch).sum().backward()
        return True
    return False


def keep_channels_last(model: nn.Module) -> None:
    """Let each convolution see and give images with their channels last. Its weights, and so what
    optimizers and techniques see, stay as they are."""
    for each in _convolutions(model):
        each.register_forward_pre_hook(_channels_last)


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [each for each in model.modules() if isinstance(each, nn.Conv2d)]


def _channels_last(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: ARG001
    x = inputs[0] if inputs else None
    if not isinstance(x, Tensor) or x.dim() != 4:
        return None
    if x.shape[1] == 1:  # both orders are the same numbers, and torch goes by the strides
        height, width = x.shape[2:]
        x = x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))
    return (x.contiguous(memory_format=torch.channels_last), *inputs[1:])
