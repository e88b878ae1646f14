"""What a sweep costs at most, in time and memory, from short probes on this machine.

A probe trains a pack for some steps and evaluates it on a part of each split, on as many threads as
a worker has. The time of a step is taken as c + M (d + e B) for M models at batch size B (c is 0
where each model is trained by itself), that of an evaluation as c + M d; the coefficients are least
squares of relative errors over the probes. Costs that a probe would take too long to measure are
extrapolated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from experiments.config.study_plan import StudyPlan
from experiments.engines import Engine, check_contract, make_engine
from experiments.engines.selection import Arithmetic, preferred, stackable
from experiments.engines.stacked import MODELS
from experiments.plan import Study
from experiments.scheduling import rounds
from experiments.scheduling.dispatch import LARGEST_PACK
from experiments.techniques import load as load_techniques
from experiments.training.evaluation.evaluator import parts_of
from experiments.training.evaluation_grid import evaluation_steps
from experiments.training.micro_batch import chunk_size, saved_bytes
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread

PROBE_SECONDS = 6.0
"""Seconds for all probes of a sweep together, approximately."""
_TIMED = 0.12
"""Least seconds that a probe's steps are timed for."""
_EXAMPLES = 1000
"""Most examples of a split in one probe of an evaluation."""
_FEWEST_EXAMPLES = 64
_EVALUATED = 0.1
"""Seconds that such a probe may take, about, before there are fewer examples."""
_WHOLE, _EXAMPLES_OF_A_MISS = 10, 300
"""Evaluations of a trial that read the whole split, those next to its target, and how many examples
the others read, about."""
_RATE = 2e10
"""Assumed multiply-adds per second, to keep the first step short."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The cost of one study on one worker of this machine."""

    engine: str
    seconds: float
    """Seconds, if every trial ran its whole budget."""
    evaluation_seconds: float
    """Seconds of these for evaluations."""
    memory: int
    """Bytes of a pack with its data, while it trains, without what Python and torch need."""

    @property
    def evaluation_share(self) -> float:
        """The part of the seconds that evaluations take, in [0, 1]."""
        return self.evaluation_seconds / self.seconds if self.seconds else 0.0


def forecast(plans: Sequence[StudyPlan], device: str) -> dict[str, Forecast]:
    """The forecast of each study. Studies that differ only in batch size and budget share probes.

    Raises:
        ExperimentError: what is asked for cannot be trained at all.
        WorkloadError: neither can the workload.
    """
    families: dict[str, list[StudyPlan]] = {}
    for plan in plans:
        families.setdefault(plan.study.shape, []).append(plan)
    until = time.perf_counter() + PROBE_SECONDS
    forecasts: dict[str, Forecast] = {}
    with single_thread():
        parts = [part for family in families.values() for part in _parts(family, device)]
        for place, part in enumerate(parts):
            allowed = max(0.0, until - time.perf_counter()) / (len(parts) - place)
            costs = part.costs(allowed)
            forecasts |= {plan.study.id: _forecast(plan.study, costs) for plan in part.plans}
    return forecasts


def packs(study: Study) -> list[int]:
    """Sizes of the packs that a study is trained in, if no trial is infeasible: a pack a round."""
    each = [stop - start for start, stop in pairwise((0, *rounds.goals(study.trials)))]
    return [
        min(LARGEST_PACK, count - start)
        for count in each
        for start in range(0, count, LARGEST_PACK)
    ]


def _forecast(study: Study, costs: _Costs) -> Forecast:
    count = len(evaluation_steps(study.evaluation_ratio, study.budget_steps))
    sizes = packs(study)
    evaluation = sum(
        costs.share_read(count, models) * count * costs.evaluation(models) for models in sizes
    )
    steps = sum(study.budget_steps * costs.step(study.mean_batch_size, models) for models in sizes)
    return Forecast(
        engine=costs.engine,
        seconds=steps + evaluation + costs.start * len(sizes),
        evaluation_seconds=evaluation,
        memory=costs.memory(study, max(sizes)),
    )


@dataclass(kw_only=True)
class _Costs:
    """What steps and evaluations of one kind of study take in one engine."""

    engine: str
    context: StudyContext
    state: float
    """Bytes of weights, gradients and optimizer state of one model."""
    saved: int
    """Bytes of activations per example and model."""
    at_once: int
    """Examples of a model in one forward, where the experiment does not say."""
    start: float = 0.0
    """Seconds from a pack's beginning to its second step."""
    steps: list[tuple[int, int, float]] = field(default_factory=list)
    """Batch size, models and seconds of each probe."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """Models and seconds, of all evaluated splits."""

    def step(self, batch_size: float, models: int) -> float:
        """Seconds of a step of a pack."""
        rows = [self._terms(size, many) for size, many, _ in self.steps]
        return float(_fit(rows, [t for *_, t in self.steps]) @ self._terms(batch_size, models))

    def evaluation(self, models: int) -> float:
        """Seconds of an evaluation of a pack."""
        rows = [self._terms(0, many)[:-1] for many, _ in self.evaluations]
        return float(_fit(rows, [t for _, t in self.evaluations]) @ self._terms(0, models)[:-1])

    def share_read(self, count: int, models: int) -> float:
        """The part of a split that each of ``count`` evaluations reads, in the mean: a stack reads
        on for each of its models."""
        parts = parts_of(self.context)
        if parts is None:
            return 1.0
        examples = sum(len(part) for part in parts.parts)
        whole = min(count, _WHOLE)
        share = (whole + (count - whole) * min(1.0, _EXAMPLES_OF_A_MISS / examples)) / count
        return min(1.0, share * (models if self.engine == "stacked" else 1))

    def memory(self, study: Study, models: int) -> int:
        """Bytes of a pack while it trains, its data included."""
        together = models if self.engine == "stacked" else 1
        examples = min(study.batches.largest, study.layout.micro_batch or self.at_once)
        data = sum(split.nbytes for split in self.context.splits.values())
        return int(models * self.state + together * self.saved * examples + data)

    def _terms(self, batch_size: float, models: int) -> np.ndarray:
        stacked = float(self.engine == "stacked")
        return np.array([stacked, models, models * batch_size], dtype=float)


def _fit(rows: Sequence[np.ndarray], seconds: Sequence[float]) -> np.ndarray:
    """Coefficients, none negative, of the least sum of squared relative errors."""
    scale = np.array(seconds)[:, None]
    coefficients: np.ndarray = nnls(np.array(rows) / scale, np.ones(len(seconds)))[0]
    return coefficients


@dataclass(kw_only=True)
class _Part:
    """Studies of one shape that one engine trains, batch sizes ascending."""

    plans: list[StudyPlan]
    engine: str
    context: StudyContext

    def costs(self, allowed: float) -> _Costs:
        """Probe them for approximately this many seconds."""
        until = time.perf_counter() + allowed
        model = self.context.model(self.plans[0].trials(0, 1)[0])
        costs = _Costs(
            engine=self.engine,
            context=self.context,
            state=0.0,
            saved=saved_bytes(self.context.workload, model, self.context.small_batch()),
            at_once=chunk_size(self.context, model, MODELS if self.engine == "stacked" else 1),
        )
        work = Arithmetic.of(self.context, model).multiply_adds
        for place, (batch_size, models) in enumerate(self._places()):
            left = until - time.perf_counter()
            if place and left <= 0:
                break
            size = self._affordable(costs, batch_size, models, work, max(left, 0.5) / 3)
            if place == 0 or (size, models) not in {probe[:2] for probe in costs.steps}:
                affordable = int(_EVALUATED * _RATE / max(work * models, 1.0))
                self._probe(costs, size, models, affordable)
        return costs

    def _places(self) -> Iterator[tuple[int, int]]:
        """Batch size and models of each probe, the most informative first."""
        sizes = [plan.study.batch_size for plan in self.plans]
        few, many = (end(packs(self.plans[0].study)) for end in (min, max))
        if self.engine == "module":  # models train one after the other: one is enough
            few = many = 1
        yield sizes[0], many
        yield sizes[-1], many
        yield sizes[-1], many  # again, if the first probe shows that a larger part is quick
        yield sizes[0], few
        yield sizes[len(sizes) // 2], many

    def _affordable(
        self, costs: _Costs, batch_size: int, models: int, work: float, allowed: float
    ) -> int:
        """``batch_size``, or a part of it of which three steps take so long at most."""
        ghost = self.context.ghost_batch or 1
        parts = [ghost * 2**i for i in range(math.floor(math.log2(batch_size // ghost)) + 1)]
        for size in (batch_size, *reversed(parts)):
            if 3 * self._expected(costs, size, models, work) <= allowed:
                return size
        return ghost

    def _expected(self, costs: _Costs, batch_size: int, models: int, work: float) -> float:
        """Seconds of a step, rather too many where their growth is not known."""
        if not costs.steps:
            return 3 * work * batch_size * models / _RATE  # forward and backward
        timed_sizes = {size for size, *_ in costs.steps}
        if len(timed_sizes) > 1 or batch_size in timed_sizes:
            return costs.step(batch_size, models)
        return costs.step(max(timed_sizes), models) * batch_size / max(timed_sizes)

    def _probe(self, costs: _Costs, batch_size: int, models: int, evaluated: int) -> None:
        """``evaluated``: examples of an evaluation that take little time."""
        plan = next(p for p in self.plans if p.study.batch_size >= batch_size)
        # Alone here, whatever group will train it: its layout's communication is not in it.
        study = replace(
            plan.study,
            batch_size=batch_size,
            ramp=None,
            layout=replace(plan.study.layout, workers=1),
        )
        examples = min(_EXAMPLES, max(_FEWEST_EXAMPLES, evaluated))
        parts = {name: split.head(examples) for name, split in self.context.splits.items()}
        parts["train"] = self.context.train
        context = replace(self.context, study=study, splits=parts)
        if not costs.steps:
            check_contract(context, plan.trials(0, 1)[0])
        began = time.perf_counter()
        engine = make_engine(self.engine, context, plan.trials(0, models))
        engine.advance(1)
        _evaluate(engine)
        costs.start = max(costs.start, time.perf_counter() - began)
        costs.steps.append((batch_size, models, _seconds(engine)))
        began = time.perf_counter()
        _evaluate(engine)
        share = sum(len(self.context.splits[n]) for n in context.evaluated) / sum(
            len(parts[name]) for name in context.evaluated
        )
        costs.evaluations.append((models, (time.perf_counter() - began) * share))
        costs.state = max(costs.state, _model_bytes(engine) / len(engine.trials))


def _parts(family: Sequence[StudyPlan], device: str) -> Iterator[_Part]:
    """The studies of one shape by the engine that trains them."""
    ranked = sorted(family, key=lambda plan: plan.study.batch_size)
    by_engine: dict[str, list[StudyPlan]] = {}
    contexts: dict[str, StudyContext] = {}
    stacks: bool | None = None
    for plan in ranked:
        study = _alone(plan.study)
        context, engine = StudyContext.load(study, device), plan.study.engine
        if engine == "auto":
            engine = preferred(context, plan.trials(0, 1)[0])
            if engine == "stacked" and stacks is None:
                # What cannot be stacked at one batch size cannot be at any.
                stacks = stackable(context, plan.trials(0, max(packs(study)))) is None
            engine = engine if stacks else "module"
        by_engine.setdefault(engine, []).append(plan)
        contexts.setdefault(engine, context)
    for engine, plans in by_engine.items():
        yield _Part(plans=plans, engine=engine, context=contexts[engine])


def _alone(study: Study) -> Study:
    """``study`` in one process, which has no one to send compressed gradients to."""
    parts = load_techniques(study.technique, study.workload.base).parts
    sent = {name for name, part in parts.items() if part.communication() is not None}
    technique = {name: value for name, value in study.technique.items() if name not in sent}
    return replace(study, technique=technique, layout=replace(study.layout, workers=1))


def _seconds(engine: Engine) -> float:
    """Seconds a step, of a pack that has taken one."""
    engine.advance(1)
    steps, spent = 1, 0.0
    while True:
        began = time.perf_counter()
        engine.advance(steps)
        _wait(engine)
        spent = time.perf_counter() - began
        if spent > _TIMED:
            return spent / steps
        steps = max(steps + 1, min(4 * steps, math.ceil(1.2 * steps * _TIMED / max(spent, 1e-6))))


def _evaluate(engine: Engine) -> None:
    for split in engine.context.evaluated:
        engine.evaluate(split)
    _wait(engine)


def _wait(engine: Engine) -> None:
    if engine.context.device.type == "cuda":
        torch.cuda.synchronize(engine.context.device)


def _model_bytes(engine: Engine) -> int:
    """Bytes of all that the engine holds of its models, with a gradient for each weight."""
    weights = sum(value.nbytes for value in engine.weights(0).values())
    return sum(_bytes(engine.copy([row])) + weights for row in range(len(engine.trials)))


def _bytes(values: Any) -> int:
    """Bytes of all tensors in nested dicts, lists and tuples."""
    if isinstance(values, Tensor):
        return values.nbytes
    if isinstance(values, Mapping):
        return sum(_bytes(value) for value in values.values())
    if isinstance(values, (list, tuple)):
        return sum(_bytes(value) for value in values)
    return 0
