"""Small folders of images in the layouts of ImageNet and of Open Images."""

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


LABELS = ("/m/cat", "/m/dog", "/m/sky", "/m/rare")


def open_images(root: Path, train: int = 20, validation: int = 9) -> Path:
    """``root/open-images``: image i has the label j (of the first three) where bit j of i is 1."""
    folder = root / "open-images"
    for split, count in (("train", train), ("validation", validation)):
        rows = ["ImageID,Source,LabelName,Confidence"]
        for i in range(count):
            write_image(folder / split / f"{split}{i:03d}.jpg", i)
            rows += [
                f"{split}{i:03d},verification,{name},{int(bool(i & 1 << j))}"
                for j, name in enumerate(LABELS[:3])
            ]
        rows.append(f"{split}000,verification,{LABELS[3]},1")
        rows.append(f"{split}absent,verification,{LABELS[0]},1")
        text = "\n".join(rows) + "\n"
        (folder / f"{split}-annotations-human-imagelabels.csv").write_text(text)
    return folder
