"""The reader of image folders against torchvision's own: ImageFolder and torch's DataLoader.

Both decode, crop and mirror the same made JPEGs with the same number of worker processes, in turn;
the ratio is of the best of some runs each, since other work of the machine can only slow one down.
Then a small network is trained from the folder: how long the device waits for its images.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from benchmarks.engines import trial
from experiments.engines.module import ModuleEngine
from experiments.plan import Study, WorkloadRef
from experiments.training import prefetch
from experiments.training.batch_order import BatchOrder
from experiments.training.prefetch import Reader
from experiments.training.study_context import StudyContext
from results.targets.target import Target
from workloads.images.files import ImageFiles, class_folders, training_transform

IMAGES = 512
SIDE = 256
BATCH = 64
RUNS = 4
CLASSES = 8
STEPS = 6


def make(root: Path) -> Path:
    """``root/imagenet`` with JPEGs of smooth noise in folders of their classes."""
    folder = root / "imagenet" / "train"
    for i in range(IMAGES):
        draw = np.random.RandomState(i)
        pixels = Image.fromarray(draw.randint(0, 256, (32, 32, 3), dtype=np.uint8))
        file = folder / f"n{i % CLASSES:08d}" / f"{i}.JPEG"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return folder


def rate(batches: Iterable[int]) -> float:
    """Images a second until the last batch; the time to start processes is in it.

    Not the time to end them: our reader, which knows of no last step, is then at the next batches.
    """
    count = 0
    began = ended = time.perf_counter()
    for size in batches:
        count += size
        ended = time.perf_counter()
    return count / (ended - began)


def ours(folder: Path, workers: int) -> Iterator[int]:
    """The batches of two epochs by our reader: the images of each."""
    _, files, labels = class_folders(folder, "imagenet")
    reader = Reader(ImageFiles(files, labels, training_transform(224)), torch.device("cpu"))
    reader._workers = workers
    order = BatchOrder(0, len(files), BATCH)
    for step in range(2 * (len(files) // BATCH)):
        yield len(reader.training(order, slice(0, BATCH), 0, step)[0])
    reader.close()


def theirs(folder: Path, workers: int) -> Iterator[int]:
    """The same by torchvision's ImageFolder and torch's DataLoader."""
    loader = DataLoader(
        ImageFolder(folder, training_transform(224)),
        BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )
    for _ in range(2):
        for x, _ in loader:
            yield len(x)


def idle(root: Path, device: str) -> tuple[float, float]:
    """Shares of training seconds in which the device waits for images: read here, and ahead."""
    os.environ["BATCHSCALE_DATA"] = str(root)
    study = Study(
        id="benchmark",
        experiment="benchmark",
        workload=WorkloadRef(spec="imagenet-resnet18", fields={"width": 16, "size": 128}),
        optimizer="sgd",
        schedule="constant",
        technique={"ghost_batch": 32},
        batch_size=BATCH,
        trials=1,
        budget_steps=10**9,
        targets=(Target.parse("validation_error < 0.001"),),
    )
    shares = []
    for workers in (0, workers_of_this_machine()):
        engine = ModuleEngine(StudyContext.load(study, device), [trial(0)])
        reader = engine.context.train._reader
        assert reader is not None
        reader._workers = workers
        waited = 0.0
        read = reader.training

        def timed(*given: object, read: Callable[..., object] = read) -> object:
            nonlocal waited
            began = time.perf_counter()
            batch = read(*given)
            waited += time.perf_counter() - began
            return batch

        engine.advance(1)
        reader.training = timed  # type: ignore[method-assign, assignment]
        began = time.perf_counter()
        engine.advance(STEPS)
        if device == "cuda":
            torch.cuda.synchronize()
        shares.append(waited / (time.perf_counter() - began))
        del reader.training
        engine.close()
    return shares[0], shares[1]


def workers_of_this_machine() -> int:
    """Worker processes that the reader chooses here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return max(1, prefetch.available_cores(device) - 1)


def rows() -> list[dict[str, object]]:
    """One row a number of workers, and the device's idle time, for the table in docs/."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as root:
        folder = make(Path(root))
        for workers in sorted({1, 2, workers_of_this_machine()}):
            rates = [
                (rate(ours(folder, workers)), rate(theirs(folder, workers))) for _ in range(RUNS)
            ]
            best = [max(column) for column in zip(*rates, strict=True)]
            rows.append(
                {
                    "what": f"{IMAGES} JPEGs of {SIDE}×{SIDE}, {workers} worker process(es)",
                    "measured": f"{best[0]:.0f} images/s, {best[0] / best[1]:.2f}× ImageFolder and "
                    f"DataLoader",
                    "wanted": "≥ 0.9×",
                }
            )
            print(rows[-1], flush=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        here, ahead = idle(Path(root), device)
        rows.append(
            {
                "what": f"training a narrow ResNet-18 on {device}: share of the time that the "
                "device waits for images",
                "measured": f"{ahead:.0%} read ahead by {workers_of_this_machine()} process(es), "
                f"{here:.0%} read in the training process",
                "wanted": "",
            }
        )
    return rows


if __name__ == "__main__":
    rows()
