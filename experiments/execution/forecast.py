"""What a sweep costs at most, in time and memory, from short probes on this machine.

A probe trains a pack for some steps at one batch size and evaluates it on a part of each split, on
as many threads as a worker has. Steps at batch sizes between two that are probed are interpolated;
beyond the largest they take longer in proportion.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import nan

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

from experiments.engines import Engine, check_contract, make_engine
from experiments.engines.selection import Arithmetic, preferred, stacking_refusal
from experiments.engines.stacked import MODELS
from experiments.plan import Study
from experiments.scheduling import rounds
from experiments.scheduling.dispatch import LARGEST_PACK
from experiments.techniques import load as load_techniques
from experiments.training.clock import wait_for
from experiments.training.evaluation.evaluator import parts_of
from experiments.training.evaluation_grid import evaluation_steps
from experiments.training.micro_batch import chunk_size, saved_bytes
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread

PROBE_SECONDS = 6.0
"""Seconds for all probes of a sweep together, approximately; a kind of study has one at least."""
_TIMED = 0.12
"""Least seconds that a probe's steps are timed for; about the most that an evaluation takes."""
_EXAMPLES, _FEWEST_EXAMPLES = 1000, 64
"""Most examples of a split in one probe of an evaluation, and the fewest, of a large model."""
_WHOLE, _EXAMPLES_OF_A_MISS = 10, 300
"""Evaluations of a trial that read the whole split, those next to its target, and how many examples
the others read, about."""
_RATE = 2e10
"""Assumed multiply-adds per second, to keep the first evaluation short."""


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


@dataclass(frozen=True, kw_only=True)
class _Probe:
    """What a pack takes at one batch size."""

    context: StudyContext
    engine: str
    models: int
    step: float
    """Seconds of a step."""
    evaluation: float
    """Seconds of an evaluation that reads each split whole."""
    state: float
    """Bytes of weights, gradients and optimizer state of one model."""
    saved: int
    """Bytes of activations per example and model."""
    at_once: int
    """Examples of a model in one forward, where the experiment does not say."""
    seconds: float
    """Of all of the probe."""

    @property
    def batch_size(self) -> int:
        return self.context.study.batch_size

    def leads_to(self, other: StudyContext, allowed: float) -> bool:
        """Whether the next probe may be of ``other``: its batch size is larger, and this probe with
        two steps of that size takes no more than the ``allowed`` seconds."""
        longer = 2 * self.step * (other.study.batch_size / self.batch_size - 1)
        return longer > 0 and self.seconds + longer <= allowed


def forecast(studies: Sequence[Study], device: str) -> dict[str, Forecast]:
    """The forecast of each study. Studies that differ only in batch size and budget share probes:
    at the smallest batch size, and at the largest to which the time leads from there.

    Raises:
        ExperimentError: what is asked for cannot be trained at all.
        WorkloadError: neither can the workload.
    """
    by_kind: dict[tuple[str, str], list[tuple[Study, StudyContext]]] = defaultdict(list)
    stacks: dict[str, bool] = {}
    unknown = Forecast(engine="program", seconds=nan, evaluation_seconds=nan, memory=0)
    forecasts = {study.id: unknown for study in studies if study.workload.program}
    studies = [study for study in studies if study.id not in forecasts]
    with single_thread():
        for study in sorted(studies, key=lambda study: study.batch_size):
            context = StudyContext.load(_alone(study), device)
            by_kind[study.shape, _engine(context, study, stacks)].append((study, context))
        until = time.perf_counter() + PROBE_SECONDS
        for place, ((_, engine), alike) in enumerate(by_kind.items()):
            check_contract(alike[0][1], alike[0][0].trial(0))
            probes: list[_Probe] = []
            larger = alike[:1]
            while larger:
                probes.append(_probe(engine, *larger[-1]))
                allowed = (until - time.perf_counter()) / (len(by_kind) - place)
                larger = [each for each in alike if probes[-1].leads_to(each[1], allowed)]
            forecasts |= {study.id: _forecast(study, probes) for study, _ in alike}
    return forecasts


def packs(study: Study) -> list[int]:
    """Sizes of the packs that a study is trained in, if no trial is infeasible: a pack a round."""
    each = [stop - start for start, stop in pairwise((0, *rounds.goals(study.trials)))]
    return [
        min(LARGEST_PACK, count - start)
        for count in each
        for start in range(0, count, LARGEST_PACK)
    ]


def _forecast(study: Study, probes: Sequence[_Probe]) -> Forecast:
    last, size = probes[-1], study.mean_batch_size
    sizes = [probe.batch_size for probe in probes]
    step = float(np.interp(size, sizes, [probe.step / probe.models for probe in probes]))
    step *= max(1.0, size / last.batch_size)
    count = len(evaluation_steps(study.evaluation_ratio, study.budget_steps))
    evaluation = count * _share_read(last, count) * last.evaluation / last.models
    largest = max(packs(study))
    together = largest if last.engine == "stacked" else 1
    examples = min(study.batches.largest, study.layout.micro_batch or last.at_once)
    data = sum(split.nbytes for split in last.context.splits.values())
    return Forecast(
        engine=last.engine,
        seconds=study.trials * (study.budget_steps * step + evaluation),
        evaluation_seconds=study.trials * evaluation,
        memory=int(largest * last.state + together * last.saved * examples + data),
    )


def _share_read(probe: _Probe, count: int) -> float:
    """The part of a split that each of ``count`` evaluations reads, in the mean: a stack reads on
    for each of its models."""
    parts = parts_of(probe.context)
    if parts is None:
        return 1.0
    examples = sum(len(part) for part in parts)
    whole = min(count, _WHOLE)
    share = (whole + (count - whole) * min(1.0, _EXAMPLES_OF_A_MISS / examples)) / count
    return min(1.0, share * probe.models)


def _engine(context: StudyContext, study: Study, stacks: dict[str, bool]) -> str:
    """The engine that trains a study.

    Args:
        stacks: whether studies of a shape can be stacked: what cannot be at one batch size cannot
            be at any.
    """
    if study.engine != "auto":
        return study.engine
    if preferred(context, study.trial(0)) == "module":
        return "module"
    if study.shape not in stacks:
        stacks[study.shape] = stacking_refusal(context, study.draw(0, packs(study)[0])) is None
    return "stacked" if stacks[study.shape] else "module"


def _probe(engine: str, study: Study, context: StudyContext) -> _Probe:
    began = time.perf_counter()
    # Where models train one after the other, one is enough.
    pack = study.draw(0, packs(study)[0] if engine == "stacked" else 1)
    model = context.model(pack[0])
    work = Arithmetic.of(context, model).multiply_adds * len(pack)
    examples = min(_EXAMPLES, max(_FEWEST_EXAMPLES, int(_TIMED * _RATE / max(work, 1.0))))
    # A ramp's first batch size stands for the others, and a part of each split for all of it.
    parts = {name: split.head(examples) for name, split in context.splits.items()}
    parts["train"] = context.train
    part = replace(context, study=replace(context.study, ramp=None), splits=parts)
    trained = make_engine(engine, part, pack)
    step = _seconds(trained)
    _evaluate(trained)
    evaluating = time.perf_counter()
    _evaluate(trained)
    now = time.perf_counter()
    whole, read = (
        sum(len(splits[name]) for name in context.evaluated) for splits in (context.splits, parts)
    )
    return _Probe(
        context=context,
        engine=engine,
        models=len(pack),
        step=step,
        evaluation=(now - evaluating) * whole / read,
        state=_model_bytes(trained) / len(pack),
        saved=saved_bytes(context.workload, model, context.small_batch()),
        at_once=chunk_size(context, model, MODELS if engine == "stacked" else 1),
        seconds=now - began,
    )


def _alone(study: Study) -> Study:
    """``study`` in one process, which has no one to send compressed gradients to."""
    parts = load_techniques(study.technique, study.workload.base).parts
    sent = {name for name, part in parts.items() if part.communication() is not None}
    technique = {name: value for name, value in study.technique.items() if name not in sent}
    return replace(study, technique=technique, layout=replace(study.layout, workers=1))


def _seconds(engine: Engine) -> float:
    """Seconds of a step, behind a first one."""
    device = engine.context.device
    engine.advance(1)
    wait_for(device)
    began, steps, spent = time.perf_counter(), 0, 0.0
    while spent < _TIMED:
        engine.advance(max(1, steps))
        wait_for(device)
        steps, spent = max(1, 2 * steps), time.perf_counter() - began
    return spent / steps


def _evaluate(engine: Engine) -> None:
    for split in engine.context.evaluated:
        engine.evaluate(split)
    wait_for(engine.context.device)


def _model_bytes(engine: Engine) -> int:
    """Bytes of all that the engine holds of its models, with a gradient for each weight."""
    copied = (
        value for row in range(len(engine.trials)) for value in tree_leaves(engine.copy([row]))
    )
    held = sum(value.nbytes for value in copied if isinstance(value, Tensor))
    return held + len(engine.trials) * sum(value.nbytes for value in engine.weights(0).values())
