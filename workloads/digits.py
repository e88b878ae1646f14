"""scikit-learn's digits: 1,797 real 8×8 images that come with the library."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from workloads.base import Batch, Classification
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "digits-mlp": ("DigitsMLP", "MLP 64-64-10 (ReLU) on scikit-learn's digits"),
    "digits-softmax": ("DigitsSoftmax", "softmax regression 64-10 on scikit-learn's digits"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 1

_SPLIT = Path(__file__).with_name("digits_split.json")
"""Which images are in which split, in order: ``sklearn.model_selection.train_test_split`` with 500
for validation, stratified by label, and the seed 0. Written down, they are the same with any
version of scikit-learn."""


@functools.cache
def splits() -> dict[str, Batch]:
    """Train (1,297) and validation (500), stratified, fixed; pixels in [0, 1], shape (N, 64)."""
    images, labels = _images_and_labels()
    x = torch.from_numpy(images / 16.0).float()
    y = torch.from_numpy(labels).long()
    split = json.loads(_SPLIT.read_text(encoding="utf-8"))
    return {name: (x[places], y[places]) for name, places in split.items()}


def _images_and_labels() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels from 0 to 16, shape (1797, 64), and labels, shape (1797,), read from scikit-learn's
    own file: to import the library takes a worker a second and a half."""
    spec = find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(folders or [""])), "datasets", "data", "digits.csv.gz")
    if not file.is_file():
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        return images, labels
    rows = np.loadtxt(file, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


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

    def layout_plan(self) -> LayoutPlan:
        """The hidden layer by its features; a pipeline layer by layer."""
        return LayoutPlan(
            columns={"0": 1}, rows=("2",), multiples={"hidden features": 64}, pipeline=("*",)
        )

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
