"""Images of 8×8 pixels: how they come to that size, and subsets of them."""

from __future__ import annotations

import pytest
import torch

from tests.problems import tensors
from workloads import images8x8, load
from workloads.data import data_root


def test_blocks_are_averaged_within_a_border(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 256, (3, 1, 28, 28), dtype=torch.uint8, generator=torch.manual_seed(0))
    monkeypatch.setattr(images8x8, "images", lambda _: {"train": (x, torch.arange(3))})
    images8x8.pooled.cache_clear()
    found, labels = images8x8.pooled("mnist")["train"]
    images8x8.pooled.cache_clear()
    assert labels.tolist() == [0, 1, 2]
    framed = torch.zeros(3, 32, 32)
    framed[:, 2:30, 2:30] = x[:, 0].float()
    for image in range(3):
        for row in range(8):
            for column in range(8):
                block = framed[image, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
                assert found[image, 8 * row + column] == pytest.approx(float(block.mean()) / 255)


def test_a_subset_is_the_first_of_the_training_split() -> None:
    whole, part = load("digits-fc").data(), load("digits-fc", {"subset": 100}).data()
    pairs = zip(tensors(part["train"]), tensors(whole["train"]), strict=True)
    assert all(torch.equal(chosen, every[:100]) for chosen, every in pairs)
    assert len(part["validation"][0]) == len(whole["validation"][0]) == 500


@pytest.mark.skipif(not (data_root() / "MNIST").is_dir(), reason="BATCHSCALE_DATA has no MNIST")
def test_mnist_is_there_at_that_size() -> None:
    data = load("mnist8-fc").data()
    pairs = {split: tensors(stored) for split, stored in data.items()}
    assert {split: tuple(x.shape) for split, (x, _) in pairs.items()} == {
        "train": (55_000, 64),
        "validation": (5_000, 64),
        "test": (10_000, 64),
    }
    x, _ = pairs["train"]
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
