"""Checks that a workload keeps its contract. Each finding is one line: the check and its result.

The comparisons train in float64, where a difference beyond rounding is an error and not noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import workloads
from experiments.engines import check_contract, make_engine, stacking_refusal
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.plan import Layout, Study, Trial, WorkloadRef
from experiments.search.space import Value
from experiments.seeds import derive
from experiments.training.auto_layout.step_times import seconds_of_step
from experiments.training.splits import Split, sampled
from experiments.training.study_context import StudyContext
from results.counts import count, plural
from results.targets.target import Target
from workloads.checks import check_splits
from workloads.ghost import GHOST_BATCH, has_batch_norm

_STEPS = 5
_TOLERANCE = 1e-6
"""Relative to the largest weight or metric: float64 rounding leaves nine digits to spare."""
_STACK = 32
_COMPARED, _CHUNK = 32, 4096
"""Examples of a split that are compared with those of another ``data()``, and read at a time."""
_RATE_SECONDS = 0.5
_USUAL: Mapping[str, Value] = {"learning_rate": 0.01}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check. ``passed`` is ``None`` where it is a fact, and not a part of the contract."""

    check: str
    passed: bool | None
    finding: str


def check(
    ref: WorkloadRef,
    *,
    batch_size: int | None = None,
    device: str = "cpu",
    observer: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Check a workload, in a few seconds.

    Args:
        ref: the workload.
        batch_size: examples a step; 64, or the training set where it is smaller, unless given.
        device: where it trains.
        observer: called with the name of each check that begins.

    Raises:
        ExperimentError: the training set has no such batch.
        WorkloadError: it cannot be loaded, or its data, loss or metrics are not of the contract's
            shape. What the user's own code raises passes through.
    """
    return list(_findings(ref, batch_size, device, observer))


def _findings(
    ref: WorkloadRef, batch_size: int | None, device: str, observer: Callable[[str], None]
) -> Iterator[Finding]:
    observer("loading the workload and its data")
    context, trial = _context(ref, batch_size, device), _trial(0)
    observer("trying its model, loss and metrics")
    check_contract(context, trial)
    yield _data(context)
    size = count(sum(p.numel() for p in context.model(trial).parameters()), "parameter")
    yield Finding(check="model", passed=None, finding=f"{size}, {device}")
    yield Finding(check="loss and metrics", passed=True, finding="one value an example")
    yield _initialization(context, trial)
    observer("training it whole and in micro-batches")
    yield _micro_batches(context, trial)
    observer("evaluating it in several ways")
    yield from _evaluation(context, trial)
    observer("stacking it")
    in_float32 = _context(ref, context.study.batch_size, device, "float32")
    reason = stacking_refusal(in_float32, [_trial(0), _trial(1)])
    yield Finding(
        check="stackable", passed=None, finding=f"no: {reason}" if reason else "yes, by torch.func"
    )
    kinds = ["module"] if reason else ["module", "stacked"]
    for kind in kinds:
        observer(f"timing the {kind} engine")
        yield _rate(kind, in_float32)


def _context(
    ref: WorkloadRef, batch_size: int | None, device: str, precision: str = "float64"
) -> StudyContext:
    if batch_size is not None and batch_size < 1:
        raise ExperimentError(f"batch size {batch_size} is below 1")
    context = StudyContext.load(_study(ref, batch_size or 1, precision), device)
    if batch_size is not None and batch_size > len(context.train):
        raise ExperimentError(
            f"batch size {batch_size:,} is over the training set "
            f"({count(len(context.train), 'example')})"
        )
    if batch_size is None:
        size = min(64, len(context.train))
        size = size // GHOST_BATCH * GHOST_BATCH or size
        context = dataclasses.replace(context, study=_study(ref, size, precision))
    return context


def _study(ref: WorkloadRef, batch_size: int, precision: str) -> Study:
    target = Target.parse(workloads.load(ref.spec, ref.fields, ref.base).target)
    return Study(
        id="check",
        experiment="check",
        workload=ref,
        optimizer="sgd",
        schedule="constant",
        technique={"precision": precision},
        batch_size=batch_size,
        trials=1,
        budget_steps=_STEPS,
        targets=(target,),
        keep=None,
    )


def _trial(index: int) -> Trial:
    return Trial(
        id=f"check-{index}", index=index, seed=derive(0, "check", index), metaparameters=_USUAL
    )


def _data(context: StudyContext) -> Finding:
    """Its sizes, and whether ``data()`` gives the same again, by the first examples."""
    sizes = ", ".join(
        f"{name} {'without end' if split.endless else f'{len(split):,}'}"
        for name, split in context.splits.items()
    )
    sizes += f" {plural(context.workload.example_unit)}"
    again = check_splits(context.workload.data(), context.workload)
    for name, split in context.splits.items():
        other = Split(again[name], context.workload, context.device, context.dtype, name)
        read = [_first(each) for each in (split, other) if len(each) == len(split)]
        if not all(map(torch.equal, read[0], read[-1])) or len(read) == 1:
            line = f"{sizes}; data() gives another {name} split each time: seed what it draws"
            return Finding(check="data", passed=False, finding=line)
    return Finding(check="data", passed=True, finding=sizes)


def _first(split: Split) -> list[Tensor]:
    """The bits of its first examples; what a Dataset draws as it reads them is seeded alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        batch = split.fetch(torch.arange(min(_COMPARED, len(split))), training=False)
    return [x.contiguous().view(torch.uint8) for x in batch]


def _not_finite(context: StudyContext) -> str:
    """What is not finite: the first such example of the data, or else the loss."""
    for name, split in context.splits.items():
        for start in range(0, len(split) if split.resident else 0, _CHUNK):
            part = torch.arange(start, min(start + _CHUNK, len(split)))
            for x in split.fetch(part, training=False):
                finite = x.isfinite().reshape(len(x), -1).all(1)
                if not finite.all():
                    first = start + int(finite.int().argmin())
                    return f"example {first:,} of {name} has NaN or infinity"
    return "look for NaN or infinity in what the model and the loss compute"


def _initialization(context: StudyContext, trial: Trial) -> Finding:
    first, second = (dict(context.model(trial).named_parameters()) for _ in range(2))
    same = all(torch.equal(value, second[name]) for name, value in first.items())
    return Finding(
        check="initialization",
        passed=same,
        finding="the same seed, the same weights"
        if same
        else "two models of one seed differ: draw from torch's global generator alone",
    )


def _micro_batches(context: StudyContext, trial: Trial) -> Finding:
    size, name = context.study.batch_size, "micro-batches"
    whole = _divided(context, trial, size)
    draws = whole.runs[0].draws
    if draws.unsupported:
        return Finding(
            check=name,
            passed=False,
            finding="random numbers of the forward pass depend on how a batch is divided "
            f"({draws.unsupported}): use torch.nn.Dropout, which follows the example",
        )
    unit = GHOST_BATCH if has_batch_norm(context.model(trial)) else 1
    part = max(unit, size // 4 // unit * unit)
    if part >= size:
        return Finding(check=name, passed=None, finding=f"not compared: one part of {size} at most")
    parts = _divided(context, trial, part)
    for engine in (whole, parts):
        engine.advance(_STEPS)
    apart = _distance(whole.weights(0), parts.weights(0))
    ways = f"{size} as 1 and as {count(-(-size // part), 'part')}, {count(_STEPS, 'step')}"
    passed = apart <= _TOLERANCE
    if not math.isfinite(apart):
        line = f"{ways}: the loss is not finite: {_not_finite(context)}"
        return Finding(check=name, passed=False, finding=line)
    return Finding(
        check=name,
        passed=passed,
        finding=f"{ways}: equal to {apart:.0e}"
        if passed
        else f"{ways}: weights differ by {apart:.0e}: an example's loss must not depend on the "
        "others of its batch",
    )


def _divided(context: StudyContext, trial: Trial, part: int) -> ModuleEngine:
    """An engine whose forward passes have at most ``part`` examples."""
    study = dataclasses.replace(context.study, layout=Layout(micro_batch=part))
    return ModuleEngine(dataclasses.replace(context, study=study), [trial])


def _evaluation(context: StudyContext, trial: Trial) -> Iterator[Finding]:
    split = context.evaluated[0]
    whole = len(context.splits[split])
    engine = ModuleEngine(
        dataclasses.replace(context, splits=sampled(context.splits, split)), [trial]
    )
    examples = len(engine.context.splits[split])
    ways: list[dict[str, float]] = []
    for chunk in dict.fromkeys((examples, max(1, examples // 3), 7)):
        engine.chunk = chunk
        ways.append(engine.evaluate(split)[0])
    first, (target,) = ways[0], context.study.targets
    metric = target.metric.partition("_")[2]
    known = metric in first
    line = str(target) if known else f"{target}: no metric {metric!r}, but {', '.join(first)}"
    yield Finding(check="target", passed=known, finding=line)
    if wrong := [name for name, value in first.items() if not math.isfinite(value)]:
        line = f"{split}_{wrong[0]} is {first[wrong[0]]}: {_not_finite(context)}"
        yield Finding(check="evaluation", passed=False, finding=line)
        return
    apart = {
        name: max(abs(other[name] - value) for other in ways) / max(abs(value), 1.0)
        for name, value in first.items()
    }
    worst = max(apart, key=lambda name: apart[name])
    passed = apart[worst] <= _TOLERANCE
    part = split if examples == whole else f"the first {count(examples, 'example')} of {split}"
    yield Finding(
        check="evaluation",
        passed=passed,
        finding=f"{part} in {len(ways)} ways of cutting it up: equal to {apart[worst]:.0e}"
        if passed
        else f"{split}_{worst} differs by {apart[worst]:.0e} with the evaluation's batch size: "
        "return one value an example, or (sum, count), and draw random numbers in training alone",
    )


def _distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Largest difference of weights, relative to the largest weight."""
    floats = [name for name, value in a.items() if value.is_floating_point()]
    scale = max((float(a[name].abs().max()) for name in floats if a[name].numel()), default=1.0)
    apart = [float((a[n] - b[n]).abs().max()) for n in floats if a[n].numel()]
    return max(apart, default=0.0) / max(scale, 1e-12)


def _rate(kind: str, context: StudyContext) -> Finding:
    """Steps a second in an engine, of all models together."""
    models = 1 if kind == "module" else _STACK
    engine = make_engine(kind, context, [_trial(i) for i in range(models)])
    rate = models / seconds_of_step(engine, _RATE_SECONDS / 2)
    many = f" ({count(models, 'model')} at once)" if models > 1 else ""
    return Finding(
        check=f"{kind} engine",
        passed=None,
        finding=f"{rate:,.0f} model steps/s at batch {context.study.batch_size}{many}",
    )
