"""ResNet-50, ResNet-18 and VGG-11 on ImageNet, in torchvision's layout.

``$BATCHSCALE_DATA/imagenet/train/<wnid>/*.JPEG`` and ``…/val/<wnid>/*.JPEG``. As in Shallue et al.
2019 the validation split is held out of the training images, 50,045 of 1,281,167, and the official
validation images are the test split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import nn
from torch.utils.data import Dataset

from workloads.base import Batch
from workloads.data import data_root
from workloads.errors import WorkloadError
from workloads.images.base import ImageClassification, normalized
from workloads.images.files import (
    ImageFiles,
    class_folders,
    evaluation_transform,
    training_transform,
    validation_part,
)
from workloads.images.networks import RESIDUAL_PLAN, residual_network, vgg11, vgg11_plan
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "imagenet-resnet50": ("ImageNetResNet50", "ResNet-50 with ghost batch norm on ImageNet"),
    "imagenet-resnet18": ("ImageNetResNet18", "ResNet-18 with ghost batch norm on ImageNet"),
    "imagenet-vgg11": ("ImageNetVGG11", "VGG-11 without batch norm on ImageNet"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 7

VALIDATION_SHARE = 50_045 / 1_281_167
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


class ImageNet(ImageClassification):
    """The data; a model is a subclass's."""

    target = "validation_error < 0.25"
    dataset = "imagenet"
    dataset_classes = 1000
    version = "1"
    size: Annotated[int, Field(ge=8)] = 224
    augmented: bool = True
    """Whether a training image is a random part of the file's, mirrored at random."""

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Each channel with mean 0 and deviation 1 over ImageNet, shape (B, 3, size, size)."""
        return normalized(batch[0], _MEAN, _DEVIATION), *batch[1:]

    def data(self) -> Mapping[str, Dataset[Batch]]:
        """1,231,122 / 50,045 / 50,000 examples, streamed: x uint8 (3, size, size), y int64.

        Raises:
            WorkloadError: the folders are not there, or not as torchvision reads them.
        """
        root = data_root() / "imagenet"
        classes, files, labels = class_folders(root / "train", self.dataset)
        if len(classes) > self.dataset_classes:
            raise WorkloadError(
                f"{root / 'train'} has {len(classes)} classes, and {self.name} has "
                f"{self.dataset_classes}"
            )
        evaluated = evaluation_transform(self.size)
        trained = training_transform(self.size) if self.augmented else evaluated
        train, validation = validation_part(len(files), VALIDATION_SHARE)
        splits = {
            "train": ImageFiles(files, labels, trained).select(train),
            "validation": ImageFiles(files, labels, evaluated).select(validation),
        }
        if (root / "val").exists():
            test_classes, test_files, test_labels = class_folders(root / "val", self.dataset)
            if test_classes != classes:
                raise WorkloadError(
                    f"{root / 'val'} has other classes than {root / 'train'}",
                    hint="both need the same folders, named by wnid",
                )
            splits["test"] = ImageFiles(test_files, test_labels, evaluated)
        return self.subsets(splits)


class ImageNetResNet50(ImageNet):
    """torchvision's ResNet-50 (stride in the 3×3 convolutions): 25,557,032 parameters.

    The paper's has the improved residual block of He et al. 2016b. Batch norm is computed over
    ghost batches of 32 examples, as there.
    """

    model_name = "resnet50"
    version = "1"
    width: Annotated[int, Field(ge=1)] = 64
    """Channels of the first stage's inner convolutions."""
    depth: int = 50
    """18, 34, 50 or 101."""

    def layout_plan(self) -> LayoutPlan:
        """Its blocks are sharded one by one; a pipeline is cut between them."""
        return RESIDUAL_PLAN

    def model(self) -> nn.Module:
        """A new model."""
        return residual_network(self.depth, self.width, self.outputs)


class ImageNetResNet18(ImageNetResNet50):
    """torchvision's ResNet-18: 11,689,512 parameters. The target is this project's."""

    target = "validation_error < 0.35"
    model_name = "resnet18"
    version = "1"
    depth: int = 18


class ImageNetVGG11(ImageNet):
    """torchvision's VGG-11 without batch norm: 132,863,336 parameters."""

    target = "validation_error < 0.35"
    model_name = "vgg11"
    version = "1"
    width: Annotated[int, Field(ge=1)] = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Of the two hidden fully connected layers."""

    def layout_plan(self) -> LayoutPlan:
        """The two hidden fully connected layers; a pipeline layer by layer."""
        return vgg11_plan(self.width)

    def model(self) -> nn.Module:
        """A new model."""
        return vgg11(self.width, self.outputs, dropout=self.dropout)
