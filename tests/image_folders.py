"""Small folders of images in the layout of ImageNet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_image(file: Path, seed: int, size: int = 24) -> None:
    """A JPEG of smooth noise."""
    pixels = np.random.RandomState(seed).randint(0, 256, (3, 4, 3), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((size + seed % 5, size), Image.Resampling.BILINEAR).save(
        file, "JPEG"
    )


def imagenet(root: Path, classes: int = 3, train: int = 12, val: int = 2) -> Path:
    """``root/imagenet`` with so many classes, and images of each."""
    folder = root / "imagenet"
    for label in range(classes):
        for part, count in (("train", train), ("val", val)):
            for i in range(count):
                seed = 1000 * label + 100 * (part == "val") + i
                write_image(folder / part / f"n{label:08d}" / f"{part}_{i}.JPEG", seed)
    return folder
