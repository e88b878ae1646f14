"""A tree in the layout of the release of Shallue et al. 2019: any size, the same every time.

Every number of it is made up but for the studies' names, which are the release's own: 35 workloads,
454 studies. A metric falls with the step, with noise, past the workload's goal to a floor. Looks
come at a distance that falls with the batch size as steps to a goal do, S_min·(1 + B_crit/B), so
that every workload has its regimes. The lines of a study's trials are moved and cut out of one
table, so that a million take seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from results.imports.support import shallue_facts as facts
from results.targets.target import Target

TRIALS, MEASUREMENTS = 194_399, 71_638_836
"""Of the release; what a tree of share 1 has, the second to the nearest trial's length."""

GOAL = "validation_error < 0.02"
"""Of the special sub-trees, whose goals in the paper are not known here."""

CNN = "mnist/simple_cnn_base/nesterov_momentum"
QUALITY = f"solution_quality/{CNN}"
HALF = "imagenet_subsets/imagenet_half_images/resnet_50/nesterov_momentum"
IMAGES = "open_images_v4/resnet_50/nesterov_momentum"
WORDS = "lm1b/lstm/nesterov_momentum"
FC = "mnist/fc_1024/sgd"

_ALL = "1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768"
_FEW = "1 2 8 32 128 512 2048 8192 32768 55000"
_FC = "1024 1024_1024 1024_1024_1024 128_128_128 2048_2048_2048 256_256_256 512_512_512 64_64_64"
_WORDS = ("val/cross_entropy_error", "train/cross_entropy_error")
_CLASSES = tuple(
    f"{split}/{metric}_error"
    for split in ("train", "val", "test")
    for metric in ("cross_entropy", "classification")
)
_PRECISION = tuple(
    f"{split}/{metric}"
    for split in ("train", "val", "test")
    for metric in ("cross_entropy_error", "average_precision")
)


def _from(least: int, most: int) -> list[int]:
    return [size for size in map(int, _ALL.split()) if least <= size <= most]


def workloads() -> dict[str, list[int]]:
    """The folders of the release and their batch sizes."""
    full = [*_from(1, 32768), 55000]
    few = [int(size) for size in _FEW.split()]
    found = {
        "cifar_10/resnet_8/nesterov_momentum": _from(2, 8192),
        "cifar_10/resnet_8/sgd": _from(2, 8192),
        "common_crawl/transformer_base/nesterov_momentum": [32, 64, 256, 1024, 4096, 16384],
        "fashion_mnist/simple_cnn_base/nesterov_momentum": few[1:],
        "imagenet/resnet_50/nesterov_momentum": [*_from(64, 32768), 65536],
        "imagenet/vgg_11/nesterov_momentum": [32, 64, *_from(256, 32768), 65536],
        "imagenet_subsets/imagenet_half_classes/resnet_50/nesterov_momentum": _from(64, 32768),
        "imagenet_subsets/imagenet_half_images/resnet_50/nesterov_momentum": _from(64, 32768),
        "lm1b/lstm/nesterov_momentum": [16, 64, 256, 1024, 4096, 16384, 32768],
        "lm1b/transformer_base/nesterov_momentum": _from(16, 32768),
        "lm1b/transformer_narrow_and_shallow/nesterov_momentum": _from(16, 32768),
        "lm1b/transformer_shallow/momentum": [32, 128, 512, 2048, 8192, 32768],
        "lm1b/transformer_shallow/nesterov_momentum": _from(16, 32768),
        "lm1b/transformer_shallow/sgd": [32, 128, 512, 2048, 8192],
        "lm1b/transformer_wide/nesterov_momentum": _from(16, 32768),
    }
    found |= {f"mnist/fc_{layers}/sgd": full for layers in _FC.split()}
    found |= {
        "mnist/simple_cnn_base/momentum": full,
        "mnist/simple_cnn_base/nesterov_momentum": few,
        "mnist/simple_cnn_base/sgd": full,
        "mnist/simple_cnn_narrow/sgd": full,
        "mnist/simple_cnn_wide/sgd": full[:-1],
    }
    for images in (13750, 27500, 55000, 6875):
        sizes = [*_from(1, images), images]
        found[f"mnist_subsets/mnist_{images}/simple_cnn_base/nesterov_momentum"] = sizes
    found["open_images_v4/resnet_50/nesterov_momentum"] = _from(64, 32768)
    found["solution_quality/fashion_mnist/simple_cnn_base/nesterov_momentum"] = few
    found["solution_quality/mnist/simple_cnn_base/nesterov_momentum"] = few
    return found


@dataclass(frozen=True, kw_only=True)
class ReleasedStudy:
    """A study to write: ``rows[i]`` measurements of the trial ``i + 1``."""

    name: str
    batch_size: int
    rows: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics that the release has of such a workload."""
        if self.name.startswith(("lm1b", "common_crawl")):
            return _WORDS
        return _PRECISION if self.name.startswith("open_images") else _CLASSES


def plan(share: float = 1.0) -> list[ReleasedStudy]:
    """The studies of a tree with that share of the release's trials (at least one a study)."""
    names = [(f"{name}/{size}", size) for name, sizes in workloads().items() for size in sizes]
    trials = max(len(names), round(TRIALS * share))
    each = MEASUREMENTS / TRIALS
    found, before = [], 0
    for at, (name, size) in enumerate(names):
        upto = trials * (at + 1) // len(names)
        ends = [round(each * trial) for trial in range(before, upto + 1)]
        rows = tuple(end - start for start, end in pairwise(ends))
        found.append(ReleasedStudy(name=name, batch_size=size, rows=rows))
        before = upto
    return found


def small() -> list[ReleasedStudy]:
    """Six workloads of two studies of five trials: 12 studies, 60 trials, 756 measurements."""
    return [
        ReleasedStudy(name=f"{name}/{size}", batch_size=size, rows=(12, 20, 7, 15, 9))
        for name in (CNN, QUALITY, HALF, IMAGES, WORDS, FC)
        for size in (64, 128)
    ]


def write(root: Path, studies: list[ReleasedStudy]) -> tuple[int, int]:
    """Write the studies under ``root``; how many trials and measurements that makes."""
    trials = measurements = 0
    for study in studies:
        folder = root / study.name
        folder.mkdir(parents=True)
        folder.joinpath("study.json").write_text(json.dumps(_study(study), indent=2))
        for metadata, text in _trials(study):
            own = folder / str(metadata["trial_id"])
            own.mkdir()
            own.joinpath("metadata.json").write_text(json.dumps(metadata, indent=2))
            own.joinpath("measurements.csv").write_bytes(text)
        trials += len(study.rows)
        measurements += sum(study.rows)
    return trials, measurements


def _study(study: ReleasedStudy) -> dict[str, Any]:
    dataset, model, optimizer, _ = study.name.split("/")[-4:]
    double = {"type": "DOUBLE", "scale": "LOG_SCALE"}
    configs: dict[str, Any] = {"learning_rate": {**double, "min_value": 1e-4, "max_value": 10.0}}
    if optimizer != "sgd":
        reverse = {"type": "DOUBLE", "scale": "REVERSE_LOG_SCALE"}
        configs["momentum"] = {**reverse, "min_value": 0.9, "max_value": 0.9999}
    if model.startswith(("resnet", "vgg")):
        configs["learning_rate_decay_steps"] = {
            "type": "INTEGER",
            "scale": "",
            "min_value": 50_000,
            "max_value": 100_000,
        }
        configs["end_learning_rate_factor"] = {**double, "min_value": 1e-4, "max_value": 0.1}
        configs["label_smoothing"] = {"type": "DISCRETE", "feasible_points": [0.0, 0.01, 0.1]}
    return {
        "batch_size": study.batch_size,
        "dataset": dataset,
        "early_stopping": False,
        "model": model,
        "optimizer": optimizer,
        "parameter_configs": configs,
        "train_steps": 0 if model.startswith("fc") else 100_000,
    }


def _trials(study: ReleasedStudy) -> Iterator[tuple[dict[str, Any], bytes]]:
    random = np.random.default_rng(sum(study.name.encode()))
    # The worst trial comes to the goal after the last look, the best at a fifth of that time.
    most = max(study.rows, default=1)
    reached = 1.1 * most
    starts = round(0.8 * reached)
    steps = np.cumsum(random.choice([2, 2, 2, 3], most)) - 2
    steps = steps * _distance(study, random)
    noise = 1 + 0.02 * random.standard_normal((most + starts, len(study.columns)))
    top, goal, floor = _range(study)
    rate = np.log((top - floor) / (goal - floor)) / reached
    curve = (top - floor) * np.exp(-rate * np.arange(most + starts))[:, None] * noise + floor
    if study.columns is _PRECISION:
        curve[:, ::2] = 8 * (1 - curve[:, ::2])
    values = [",".join(map(repr, row)) for row in np.round(curve, 6).tolist()]
    header = ",".join(("step", *study.columns))
    configs = _study(study)["parameter_configs"]
    for at, rows in enumerate(study.rows):
        trial = at + 1
        # A later start in the table is a better trial: it is further down at its first look.
        start = int(random.integers(0, starts + 1))
        stop = start + rows
        lines = [f"{s},{v}" for s, v in zip(steps[:rows].tolist(), values[start:stop], strict=True)]
        status = ("COMPLETE", "COMPLETE", "INFEASIBLE", "COMPLETE", "INCOMPLETE")[at % 5]
        if status == "INFEASIBLE" and lines:
            lines[-1] = lines[-1].split(",")[0] + ",nan" * len(study.columns)
        metadata = {
            "_internal_study_name": study.name.replace("/", "-"),
            "_internal_trial_id": trial,
            "parameters": {name: _draw(config, random) for name, config in configs.items()},
            "status": status,
            "steps": int(steps[rows - 1]) if rows else 0,
            "trial_id": trial,
        }
        yield metadata, "\n".join([header, *lines, ""]).encode()


def _distance(study: ReleasedStudy, random: np.random.Generator) -> int:
    """Half the steps from a look to the next: 20·(1 + B_crit/B), with the scatter of a search."""
    sizes = workloads()[study.name.rpartition("/")[0]]
    critical = (min(sizes) * max(sizes)) ** 0.5
    scatter = np.exp(0.08 * random.standard_normal())
    return max(1, round(20 * (1 + critical / study.batch_size) * scatter))


def _range(study: ReleasedStudy) -> tuple[float, float, float]:
    """Where a curve begins, the goal that it comes to, and where it ends."""
    *above, dataset, model, _, _ = study.name.split("/")
    goal = Target.parse((None if above else facts.goal(dataset, model)) or GOAL).value
    if study.columns is _WORDS:
        return 8.0, goal, goal - 0.5
    if study.columns is _PRECISION:
        return 0.01, goal, goal + 0.1
    return 0.9, goal, goal / 5


def _draw(config: dict[str, Any], random: np.random.Generator) -> float | int:
    if config["type"] == "DISCRETE":
        return float(random.choice(config["feasible_points"]))
    low, high = config["min_value"], config["max_value"]
    if config["type"] == "INTEGER":
        return int(random.integers(low, high + 1))
    if config["scale"] == "REVERSE_LOG_SCALE":
        return float(1 - np.exp(random.uniform(np.log(1 - high), np.log(1 - low))))
    return float(np.exp(random.uniform(np.log(low), np.log(high))))
