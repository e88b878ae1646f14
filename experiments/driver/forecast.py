"""What a sweep costs at most, in time and memory, from a probe of a few seconds on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.config.plans import StudyPlan
from experiments.driver.dispatch import LARGEST_PACK
from experiments.engines import Engine, make_engine
from experiments.plan import Study, Trial
from experiments.search import block
from experiments.training.looks import looks
from experiments.training.memory import saved_bytes
from experiments.training.setup import Setup

_PROBED = 3
"""Batch sizes of each kind of study that are probed; what lies between is interpolated."""
_SECONDS = 0.2
"""Least time that a probe's steps are timed for."""
_FEW = 2
"""Models of the module engine that are probed: it trains them one after the other."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The cost of one study on one worker of this machine."""

    engine: str
    seconds: float
    """If every trial ran its whole budget."""
    memory: int
    """Bytes of a pack with its data, while it trains, without what Python and torch need."""


@dataclass(frozen=True, kw_only=True)
class _Probe:
    engine: str
    step: float
    """Seconds a step of a pack, and a look at it."""
    look: float
    memory: int


def forecast(plans: Sequence[StudyPlan], device: str) -> dict[str, Forecast]:
    """By study. Studies that differ in batch size alone are probed at three of theirs.

    Raises:
        ExperimentError: what is asked for cannot be trained at all.
        WorkloadError: neither can the workload.
    """
    families: dict[str, list[StudyPlan]] = {}
    for plan in plans:
        families.setdefault(plan.study.shape, []).append(plan)
    found: dict[str, Forecast] = {}
    for family in families.values():
        found |= _family(family, device)
    return found


def _family(plans: Sequence[StudyPlan], device: str) -> Mapping[str, Forecast]:
    ranked = sorted(plans, key=lambda plan: plan.study.batch_size)
    places = sorted({round(i) for i in np.linspace(0, len(ranked) - 1, _PROBED)})
    probes = {ranked[i].study.batch_size: _probe(ranked[i], device) for i in places}
    sizes = list(probes)
    found = {}
    for plan in ranked:
        study = plan.study
        # Steps take a base and a share of the examples: piecewise linear in the batch size.
        step, look, memory = (
            float(np.interp(study.batch_size, sizes, [getattr(p, name) for p in probes.values()]))
            for name in ("step", "look", "memory")
        )
        nearest = min(sizes, key=lambda size: abs(np.log(size / study.batch_size)))
        packs = study.trials / _models(study)
        count = len(looks(study.evaluation_ratio, study.budget_steps))
        found[study.id] = Forecast(
            engine=probes[nearest].engine,
            seconds=packs * (study.budget_steps * step + count * look),
            memory=int(memory),
        )
    return found


def _models(study: Study) -> int:
    return min(study.trials, block(study.search) or LARGEST_PACK)


def _probe(plan: StudyPlan, device: str) -> _Probe:
    # Alone here, whatever group will train it: its layout's communication is not in the estimate.
    study = replace(plan.study, layout=replace(plan.study.layout, workers=1))
    models = _models(study)
    setup, trials = Setup.load(study, device), plan.trials(0, models)
    engine = make_engine(study.engine, setup, trials)
    if engine.kind == "module":
        engine = make_engine("module", setup, trials[:_FEW])
    scale = models / len(engine.trials)
    step = _seconds(engine, setup.device)
    return _Probe(
        engine=engine.kind,
        step=step * scale,
        look=_look_seconds(engine, setup) * scale,
        memory=_memory(engine, setup, trials[0], scale),
    )


def _seconds(engine: Engine, device: torch.device) -> float:
    """Seconds a step, after two to warm up."""
    engine.advance(2)
    steps = 1
    while True:
        began = time.perf_counter()
        engine.advance(steps)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent = time.perf_counter() - began
        if spent > _SECONDS:
            return spent / steps
        steps *= 2


def _look_seconds(engine: Engine, setup: Setup) -> float:
    """Seconds that one evaluation takes; of a streamed split, from a part of it."""
    seconds = 0.0
    for split in setup.evaluated:
        engine.setup = setup.sampled(split)
        began = time.perf_counter()
        engine.evaluate(split)
        spent = time.perf_counter() - began
        seconds += spent * len(setup.splits[split]) / len(engine.setup.splits[split])
    engine.setup = setup
    return seconds


def _memory(engine: Engine, setup: Setup, trial: Trial, scale: float) -> int:
    """Weights, gradients and what the optimizer holds; activations of one forward; the data."""
    state = _bytes(engine.state())
    model = setup.model(trial)
    weights = sum(p.nbytes for p in model.parameters())
    examples = min(setup.study.batch_size, setup.micro_batch(model, LARGEST_PACK))
    activations = saved_bytes(setup.workload, model, setup.few()) * examples
    models = len(engine.trials)
    at_once = models if engine.kind == "stacked" else 1
    data = sum(split.nbytes for split in setup.splits.values())
    return int(scale * (state + models * weights) + at_once * activations + data)


def _bytes(values: Any) -> int:
    """Of all tensors in nested dicts, lists and tuples."""
    if isinstance(values, Tensor):
        return values.nbytes
    if isinstance(values, Mapping):
        return sum(_bytes(value) for value in values.values())
    if isinstance(values, (list, tuple)):
        return sum(_bytes(value) for value in values)
    return 0
