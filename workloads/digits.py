"""scikit-learn's digits: 1,797 real 8×8 images that come with the library."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import nn

from workloads.base import Batch, Classification

_SPLIT_SEED = 0


@functools.cache
def splits() -> dict[str, Batch]:
    """Train (1,297) and validation (500), stratified, fixed; pixels in [0, 1], shape (N, 64)."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train, validation = train_test_split(
        range(len(labels)), test_size=500, stratify=labels, random_state=_SPLIT_SEED
    )
    x = torch.from_numpy(images / 16.0).float()
    y = torch.from_numpy(labels).long()
    return {"train": (x[train], y[train]), "validation": (x[validation], y[validation])}


class _Digits(Classification):
    target = "validation_error < 0.04"
    dataset = "digits"
    version = "1"

    def data(self) -> Mapping[str, Batch]:
        """1,297 and 500 examples: x float32 (N, 64), y int64 (N,)."""
        return splits()


class DigitsMLP(_Digits):
    """A multilayer perceptron 64-64-10 with ReLU: 4,810 parameters."""

    model_name = "mlp"
    version = "1"

    def model(self) -> nn.Module:
        """A new model."""
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class DigitsSoftmax(_Digits):
    """Softmax regression, 64-10: 650 parameters, a convex problem."""

    model_name = "softmax"
    version = "1"

    def model(self) -> nn.Module:
        """A new model."""
        return nn.Sequential(nn.Linear(64, 10))
