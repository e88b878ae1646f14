"""Digits are what scikit-learn's loader and its stratified split give."""

from __future__ import annotations

import sys

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from workloads import digits
from workloads.base import Batch


def by_scikit_learn() -> dict[str, Batch]:
    images, labels = load_digits(return_X_y=True)
    train, validation = train_test_split(
        range(len(labels)), test_size=500, stratify=labels, random_state=0
    )
    x, y = torch.from_numpy(images / 16.0).float(), torch.from_numpy(labels).long()
    return {"train": (x[train], y[train]), "validation": (x[validation], y[validation])}


@pytest.mark.parametrize("moved", [False, True])
def test_the_same_as_by_scikit_learn(monkeypatch: pytest.MonkeyPatch, moved: bool) -> None:
    """Also where a version of the library keeps its file elsewhere."""
    if moved:
        monkeypatch.setattr(digits, "find_spec", lambda _: sys.modules["torch"].__spec__)
    splits = digits.splits.__wrapped__()
    for name, (x, y) in by_scikit_learn().items():
        assert splits[name][0].dtype == x.dtype
        assert torch.equal(splits[name][0], x)
        assert torch.equal(splits[name][1], y)
    assert list(splits) == ["train", "validation"]
