"""The packaged workloads by name. Nothing is imported until one is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from workloads.errors import WorkloadError, nearest

if TYPE_CHECKING:
    from workloads.base import Workload


class Entry(NamedTuple):
    """Where a packaged workload lives, and what it is in one line."""

    module: str
    cls: str
    summary: str


REGISTRY = {
    "digits-mlp": Entry(
        "workloads.digits", "DigitsMLP", "MLP 64-64-10 (ReLU) on scikit-learn's digits"
    ),
    "digits-softmax": Entry(
        "workloads.digits", "DigitsSoftmax", "softmax regression 64-10 on scikit-learn's digits"
    ),
    "digits-fc": Entry(
        "workloads.images8x8", "DigitsFC", "ReLU MLP of the given `widths` on scikit-learn's digits"
    ),
    "mnist8-fc": Entry(
        "workloads.images8x8", "MNIST8FC", "ReLU MLP of the given `widths` on MNIST at 8×8 pixels"
    ),
    "fashion-mnist8-fc": Entry(
        "workloads.images8x8", "FashionMNIST8FC", "the same on Fashion-MNIST at 8×8 pixels"
    ),
    "mnist-fc": Entry("workloads.fc", "MNISTFC", "ReLU MLP of the given `widths` on MNIST"),
    "mnist-simple-cnn": Entry("workloads.simple_cnn", "MNISTSimpleCNN", "two-layer CNN on MNIST"),
    "fashion-mnist-simple-cnn": Entry(
        "workloads.simple_cnn", "FashionMNISTSimpleCNN", "two-layer CNN on Fashion-MNIST"
    ),
    "cifar10-resnet8": Entry(
        "workloads.resnet8", "CIFAR10ResNet8", "ResNet-8 without batch norm on CIFAR-10"
    ),
    "quadratic": Entry(
        "workloads.quadratic", "Quadratic", "the noisy quadratic model, with an exact answer"
    ),
}


def names() -> dict[str, str]:
    """The packaged workloads: name -> what it is, in one line."""
    return {name: entry.summary for name, entry in REGISTRY.items()}


def get(name: str) -> type[Workload]:
    """The class of a packaged workload.

    Raises:
        WorkloadError: no workload has that name.
    """
    if name not in REGISTRY:
        raise WorkloadError(f"no workload is called {name!r}", hint=nearest(name, REGISTRY))
    entry = REGISTRY[name]
    cls: type[Workload] = getattr(importlib.import_module(entry.module), entry.cls)
    return cls


def name_of(cls: type) -> str:
    """The registered name of a class; of one's own, its class name."""
    for name, entry in REGISTRY.items():
        if (entry.module, entry.cls) == (cls.__module__, cls.__qualname__):
            return name
    return cls.__name__
