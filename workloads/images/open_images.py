"""ResNet-50 on Open Images: several labels an image, measured by average precision.

``$BATCHSCALE_DATA/open-images/train/<ImageID>.jpg``, ``validation`` and perhaps ``test`` alike, and
beside each folder its image-level labels as they are published:
``train-annotations-human-imagelabels.csv`` with the columns ``ImageID``, ``LabelName`` and
``Confidence``, of which the rows with confidence 1 count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import Dataset

from workloads.base import Batch
from workloads.data import data_root, first_line
from workloads.errors import WorkloadError
from workloads.images.base import Share
from workloads.images.files import ImageFiles, evaluation_transform, training_transform
from workloads.images.imagenet import normalized
from workloads.images.multilabel import MultiLabel
from workloads.images.networks import RESIDUAL_PLAN, residual_network
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "open-images-resnet50": ("OpenImagesResNet50", "ResNet-50 with ghost batch norm on Open Images")
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 8

_COLUMNS = ["ImageID", "LabelName", "Confidence"]


class _LabelledFiles(ImageFiles):
    """Image files with the positions of their labels, which an example has as zeros and ones."""

    def __init__(
        self,
        files: Sequence[str],
        positions: Sequence[Sequence[int]],
        labels: int,
        transform: Callable[[Any], Tensor],
    ) -> None:
        super().__init__(files, torch.empty(0), transform)
        self.positions, self.count = positions, labels

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        labels = torch.zeros(self.count, dtype=torch.uint8)
        labels[list(self.positions[index])] = 1
        return self.image(self.files[index]), labels


class OpenImagesResNet50(MultiLabel):
    """torchvision's ResNet-50; the labels are the most frequent ones of the training images."""

    target = "validation_average_precision > 0.31"
    dataset = "open-images"
    model_name = "resnet50"
    version = "1"
    added_fields = frozenset({"validation_share"})
    labels: Annotated[int, Field(ge=1)] = 7186
    """How many labels are predicted: of version 4, those with enough images to be trained on."""
    size: Annotated[int, Field(ge=8)] = 224
    augmented: bool = True
    """Whether a training image is a random part of the file's, mirrored at random."""
    train_share: Share = 1.0
    """Share of the training images that are used, the first of a fixed permutation."""
    validation_share: Share = 1.0
    """Share of the validation images that are used, likewise: an evaluation decodes all of them."""
    width: Annotated[int, Field(ge=1)] = 64
    """Channels of the first stage's inner convolutions."""
    depth: int = 50
    """18, 34, 50 or 101."""

    def data(self) -> Mapping[str, Dataset[Batch]]:
        """Streamed: x uint8 (3, size, size), y uint8 (labels,).

        Raises:
            WorkloadError: a folder or a file of labels is not there, or not as it is published.
        """
        root = data_root() / "open-images"
        evaluated = evaluation_transform(self.size)
        trained = training_transform(self.size) if self.augmented else evaluated
        names = frequent_labels(root, self.labels)
        shares = {"train": self.train_share, "validation": self.validation_share}
        splits = {}
        for split in ("train", "validation", "test"):
            if split == "test" and not (root / split).is_dir():
                continue
            files, positions = labelled(root, split, names)
            share = shares.get(split, 1.0)
            if share < 1:
                count = max(1, round(len(files) * share))
                used = sorted(np.random.RandomState(0).permutation(len(files))[:count].tolist())
                files, positions = [files[i] for i in used], [positions[i] for i in used]
            transform = trained if split == "train" else evaluated
            splits[split] = _LabelledFiles(files, positions, self.labels, transform)
        return splits

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Each channel with mean 0 and deviation 1 over ImageNet, shape (B, 3, size, size)."""
        return normalized(batch[0]), *batch[1:]

    def layout_plan(self) -> LayoutPlan:
        """Its blocks are sharded one by one; a pipeline is cut between them."""
        return RESIDUAL_PLAN

    def model(self) -> nn.Module:
        """A new model."""
        return residual_network(self.depth, self.width, self.labels)


def frequent_labels(root: Path, count: int) -> dict[str, int]:
    """The ``count`` labels that most training images have, each with its position.

    Raises:
        WorkloadError: there are not so many.
    """
    sizes = _positive(root, "train").groupby("LabelName").size()
    names = sorted(sizes.index, key=lambda name: (-sizes[name], name))[:count]
    if len(names) < count:
        raise WorkloadError(
            f"the training images of open-images have {len(names)} labels, not {count}",
            hint=f"choose at most {len(names)} labels",
        )
    return {name: position for position, name in enumerate(names)}


def labelled(
    root: Path, split: str, names: Mapping[str, int]
) -> tuple[list[str], list[tuple[int, ...]]]:
    """The images of a split in alphabetical order, and the positions of each one's labels.

    Only images that are there and have a row in the labels, be it of a label not in ``names``.

    Raises:
        WorkloadError: there is no such image.
    """
    folder, rows = root / split, _positive(root, split)
    if not folder.is_dir():
        raise WorkloadError(
            f"data set open-images is not in {root}: there is no folder {split}",
            hint="it is not downloaded: put the images there, or set BATCHSCALE_DATA",
        )
    present = {file.stem: str(file) for file in sorted(folder.glob("*.jpg"))}
    positions: dict[str, set[int]] = {image: set() for image in rows["ImageID"] if image in present}
    for image, label in zip(rows["ImageID"], rows["LabelName"], strict=True):
        if image in positions and label in names:
            positions[image].add(names[label])
    if not positions:
        raise WorkloadError(f"no image in {folder} has a label in {_file(root, split).name}")
    order = sorted(positions)
    return [present[image] for image in order], [tuple(sorted(positions[i])) for i in order]


def _file(root: Path, split: str) -> Path:
    return root / f"{split}-annotations-human-imagelabels.csv"


@functools.cache
def _positive(root: Path, split: str) -> pd.DataFrame:
    """The rows of labels that an image has."""
    file = _file(root, split)
    if not file.is_file():
        raise WorkloadError(
            f"data set open-images is not in {root}: there is no file {file.name}",
            hint="it is not downloaded: put the published image-level labels there, or set "
            "BATCHSCALE_DATA to a root that has them",
        )
    try:
        rows = pd.read_csv(file, usecols=_COLUMNS, dtype={"ImageID": str, "LabelName": str})
    except (ValueError, OSError) as error:
        raise WorkloadError(f"{file} cannot be read: {first_line(error)}") from error
    return rows[rows["Confidence"] == 1]
