"""Splits of image files, decoded when they are read; torchvision's reader of folders of classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from workloads.data import torchvision_module
from workloads.errors import WorkloadError, first_line


class ImageFiles(Dataset[tuple[Tensor, Tensor]]):
    """Image files with their labels: examples are (x uint8 (3, height, width), label)."""

    def __init__(
        self, files: Sequence[str], labels: Tensor, transform: Callable[[Any], Tensor]
    ) -> None:
        """
        Args:
            labels: one for each file: int64 (N,), or a row of any kind.
            transform: from a PIL image in RGB to a tensor; it draws from torch's generator alone.
        """
        self.files, self.labels, self.transform = files, labels, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.image(self.files[index]), self.labels[index]

    def image(self, file: str) -> Tensor:
        """The decoded and transformed image.

        Raises:
            WorkloadError: the file cannot be read or decoded.
        """
        try:
            return self.transform(_load_rgb()(file))
        except (OSError, SyntaxError, ValueError) as error:  # PIL raises these for broken files
            raise WorkloadError(
                f"image {file} cannot be decoded: {first_line(error)}",
                hint="copy the file again, or remove it",
            ) from error

    def select(self, indices: Tensor) -> ImageFiles:
        """The examples ``indices``, in that order."""
        files = [self.files[i] for i in indices.tolist()]
        return type(self)(files, self.labels[indices], self.transform)


@functools.cache
def _load_rgb() -> Callable[[str], Any]:
    loader: Callable[[str], Any] = torchvision_module("datasets.folder").pil_loader
    return loader


def training_transform(size: int) -> Callable[[Any], Tensor]:
    """A random part of the image, resized to ``size`` pixels and mirrored with probability 1/2
    (Szegedy et al. 2015, as torchvision's references train ResNet-50)."""
    t = torchvision_module("transforms")
    return _composed(t.RandomResizedCrop(size), t.RandomHorizontalFlip())


def evaluation_transform(size: int) -> Callable[[Any], Tensor]:
    """The middle ``size`` pixels of the image, whose shorter side is made size · 256/224 long."""
    t = torchvision_module("transforms")
    return _composed(t.Resize(round(size * 256 / 224)), t.CenterCrop(size))


def _composed(*steps: Any) -> Callable[[Any], Tensor]:
    t = torchvision_module("transforms")
    transform: Callable[[Any], Tensor] = t.Compose([*steps, t.PILToTensor()])
    return transform


@functools.cache
def class_folders(folder: Path, name: str) -> tuple[list[str], tuple[str, ...], Tensor]:
    """``folder/<class>/<image>`` as torchvision's ``ImageFolder`` reads it, once a process.

    Returns:
        The classes in alphabetical order, the files in their order, and their labels, int64 (N,).

    Raises:
        WorkloadError: no folder, no folder of a class in it, or one without an image.
    """
    if not folder.is_dir():
        raise WorkloadError(
            f"data set {name} is not in {folder.parent}: there is no folder {folder.name}",
            hint="it is not downloaded: put train/CLASS/IMAGE.JPEG and val/CLASS/IMAGE.JPEG "
            "there, or set BATCHSCALE_DATA to a root that has them",
        )
    if not any(entry.is_dir() for entry in folder.iterdir()):
        raise WorkloadError(
            f"the images in {folder} are not in folders of their classes",
            hint="move each image into a folder named by its class, as torchvision's ImageNet "
            "reader does with its development kit",
        )
    try:
        read = torchvision_module("datasets").ImageFolder(folder)
    except FileNotFoundError as error:
        raise WorkloadError(f"{folder} cannot be read: {first_line(error)}") from error
    files = tuple(file for file, _ in read.samples)
    return read.classes, files, torch.tensor(read.targets, dtype=torch.int64)


def validation_part(examples: int, share: float) -> tuple[Tensor, Tensor]:
    """Indices of training and validation examples, a fixed permutation cut in two.

    The validation split is the last round(examples · share), and at least one.
    """
    order = torch.from_numpy(np.random.RandomState(0).permutation(examples))
    count = max(1, round(examples * share))
    return order[:-count], order[-count:]
