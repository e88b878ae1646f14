"""Small studies and trials that the tests of training share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from experiments import optimizers, schedules
from experiments.encoding import decode, encode
from experiments.engines import Engine, make_engine
from experiments.parallel import SOLO, Ranks
from experiments.plan import Layout, Measurement, Outcome, Pack, Study, Trial, WorkloadRef
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from results.targets.target import Target
from workloads import Classification, TokenStream

OPTIMIZERS = ["sgd", "momentum", "nesterov", "adam", "adamw"]
SCHEDULES = schedules.names()


def study(**changes: Any) -> Study:
    """digits-softmax at batch 64, unless told otherwise; ``precision`` goes to the technique."""
    technique = {"precision": changes.pop("precision", "float32"), **changes.pop("technique", {})}
    layout = Layout(workers=changes.pop("workers", 1), micro_batch=changes.pop("micro_batch", None))
    target = changes.pop("target", "validation_error < 0.04")
    workload = changes.pop("workload", "digits-softmax")
    given = {
        "id": "study",
        "experiment": "test",
        "optimizer": "sgd",
        "schedule": "constant",
        "batch_size": 64,
        "trials": 8,
        "budget_steps": 200,
        **changes,
    }
    return Study(
        workload=workload if isinstance(workload, WorkloadRef) else WorkloadRef(spec=workload),
        technique=technique,
        layout=layout,
        targets=(Target.parse(target),),
        **given,
    )


def trials(of: Study, count: int, *, seed: int = 0, **fixed: Any) -> tuple[Trial, ...]:
    """``count`` random points of legal metaparameters, each with its own seed."""
    draw = np.random.default_rng(seed)
    arguments = optimizers.get(of.optimizer, of.workload.base).arguments
    found = []
    for index in range(count):
        values: dict[str, Any] = {
            "learning_rate": float(10 ** draw.uniform(-3, -0.5)),
            "momentum": float(draw.uniform(0.5, 0.95)),
            "weight_decay": float(10 ** draw.uniform(-4, -2)),
            "beta1": float(draw.uniform(0.5, 0.95)),
            "beta2": float(draw.uniform(0.9, 0.999)),
        }
        values = {k: v for k, v in values.items() if k in arguments}
        if "decay_steps" in schedules.get(of.schedule, of.workload.base).arguments:
            values |= {"decay_steps": int(draw.integers(5, 40)), "end_factor": 0.1}
            values |= {"warmup_steps": int(draw.integers(0, 5))}
        for name in schedules.get(of.schedule, of.workload.base).required:
            if name not in values:
                values[name] = int(draw.integers(5, 40))
        found.append(
            Trial(
                id=f"trial-{seed}-{index}",
                index=index,
                seed=int(draw.integers(1 << 62)),
                metaparameters={**values, **fixed},
            )
        )
    return tuple(found)


def tensors(
    split: tuple[torch.Tensor, ...] | TokenStream | Dataset[Any],
) -> tuple[torch.Tensor, ...]:
    """A split that is a tuple of tensors."""
    assert isinstance(split, tuple)
    return split


def engine(
    kind: str,
    of: Study,
    some: tuple[Trial, ...],
    device: str = "cpu",
    group: Ranks = SOLO,
    *,
    steps: int = 0,
) -> Engine:
    """An engine that has taken so many steps."""
    made = make_engine(kind, StudyContext.load(of, device, group), some)
    if steps:
        made.advance(steps)
    return made


def saved(one: Engine) -> bytes:
    """The states of all trials of an engine, as a snapshot has them."""
    return encode(one.copy(range(len(one.trials))))


def restore(one: Engine, states: bytes) -> None:
    """Take all trials of an engine to where they were when ``saved``."""
    for row, state in enumerate(decode(states)):
        one.restore(row, state)


def train(of: Study, some: tuple[Trial, ...], kind: str = "module", **more: Any) -> list[Any]:
    """Every event of a pack trained to its end."""
    options: dict[str, Any] = {"engine": kind, **more}
    training = Training(Pack(id="pack", study=of, trials=some, **options))
    return [event for look in training.run() for event in look]


def train_in_pieces(pack: Pack) -> list[Any]:
    """Every event of a pack that ends and is continued from a snapshot at every evaluation."""
    training, events = Training(pack), []
    while training.active:
        events += next(training.run(), [])
        if training.active:
            training = Training(pack, snapshot=training.snapshot())
    return events


def outcomes(events: list[Any]) -> dict[str, Outcome]:
    """The outcomes among ``events``, by trial."""
    return {e.trial: e for e in events if isinstance(e, Outcome)}


def measurements(events: list[Any]) -> list[Measurement]:
    """The measurements among ``events``."""
    return [e for e in events if isinstance(e, Measurement)]


def said(events: list[Any]) -> dict[str, list[Any]]:
    """What is said of each trial, clocks left out."""
    found: dict[str, list[Any]] = {}
    for event in events:
        clocks = {f: 0.0 for f in vars(event) if f.endswith("_seconds")}
        found.setdefault(event.trial, []).append(replace(event, **clocks))
    return found


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of any weight, relative to its tensor's largest."""
    assert a.keys() == b.keys()
    return max(float((a[n] - b[n]).abs().max() / a[n].abs().max().clamp_min(1e-3)) for n in a)


class TinyData:
    """``(x, y)`` of a small, fixed, real-looking classification problem."""

    @staticmethod
    def splits(examples: int = 96, features: int = 6) -> dict[str, tuple[torch.Tensor, ...]]:
        draw = np.random.default_rng(7)
        x = torch.tensor(draw.normal(size=(2 * examples, features)), dtype=torch.float32)
        y = (x @ torch.tensor(draw.normal(size=(features, 3)), dtype=torch.float32)).argmax(1)
        return {"train": (x[:examples], y[:examples]), "validation": (x[examples:], y[examples:])}

    @staticmethod
    def model(features: int = 6) -> nn.Module:
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 3))


class Tiny(Classification):
    """Those data and that model: what workloads of users' files in tests derive from."""

    target = "validation_error < 0.2"

    def data(self) -> Any:
        return TinyData.splits()

    def model(self) -> nn.Module:
        return TinyData.model()
