"""What image classification workloads share: subsets of their examples and of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from workloads.base import Classification
from workloads.errors import WorkloadError

Share = Annotated[float, Field(gt=0, le=1)]
Split = TypeVar("Split")


def normalized(x: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Bytes of images, (B, channels, height, width): from [0, 1], less the mean of each channel,
    over its deviation."""
    return (x.float() / 255 - _channels(mean, x.device)) / _channels(deviation, x.device)


@lru_cache(maxsize=32)
def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """A number of each channel, ``(channels, 1, 1)``: kept on the device, since copying it there
    in each batch would let the host wait for a GPU."""
    return torch.tensor(values, device=device).view(-1, 1, 1)


class ImageClassification(Classification):
    """``classes`` is the share of the classes that are used, in all splits: those with the lowest
    labels. ``train_share`` is the share of the training examples of each class that are used: the
    first of them in the split's order, which is random.
    """

    added_fields = frozenset({"train_share", "classes"})
    dataset_classes: ClassVar[int] = 10
    """Classes of the whole data set."""
    train_share: Share = 1.0
    classes: Share = 1.0

    @property
    def outputs(self) -> int:
        """Classes that are used.

        Raises:
            WorkloadError: fewer than two.
        """
        count = round(self.classes * self.dataset_classes)
        if count < 2:
            raise WorkloadError(
                f"classes: {self.classes} of {self.dataset} leaves {count} of its "
                f"{self.dataset_classes} classes",
                hint=f"give a share of at least {2 / self.dataset_classes:g}",
            )
        return count

    def subsets(self, splits: Mapping[str, Split]) -> dict[str, Split]:
        """The splits with the share of classes, the training split with the share of examples.

        Each is a tuple of tensors, the labels second, or has ``labels`` and ``select(indices)``,
        as ``ImageFiles``.
        """
        return {
            name: self._subset(split, self.train_share if name == "train" else 1.0)
            for name, split in splits.items()
        }

    def _subset(self, split: Any, share: float) -> Any:
        labels = split[1] if isinstance(split, tuple) else split.labels
        indices = subset(labels, self.outputs, share)
        if len(indices) == len(labels):
            return split
        if isinstance(split, tuple):
            return tuple(part[indices] for part in split)
        return split.select(indices)


def subset(labels: Tensor, classes: int, share: float) -> Tensor:
    """Indices, ascending, of the first ``share`` of the examples of each class below ``classes``.

    Of n examples of a class, round(n · share) are taken, and at least one.
    """
    if share == 1.0:
        return torch.nonzero(labels < classes).flatten()
    taken = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(classes):
        of_class = torch.nonzero(labels == label).flatten()
        taken[of_class[: max(1, round(len(of_class) * share))]] = True
    return torch.nonzero(taken).flatten()
