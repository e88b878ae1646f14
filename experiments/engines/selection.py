"""Which engine trains a study, and whether it can be stacked at all.

The choice must not be a matter of timing: the engines round differently, so that a busy machine
would get other steps to target for the same command. It is a rule on the shapes and the kind of
device. Stacking saves what an operation costs besides its arithmetic; where the arithmetic of one
is large, or a model's weights do not stay in the cache, it saves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from experiments.engines.base import Engine
from experiments.engines.module import ModuleEngine
from experiments.engines.randomness import RandomDraws
from experiments.engines.stack import Stack, width_of
from experiments.engines.stacked import StackedEngine
from experiments.engines.updates import make_update
from experiments.errors import ExperimentError
from experiments.identity import optimizer_identity
from experiments.optimizers.trial_run import GRADIENTS, OptimizerRun
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.parallel.ranks import UnconnectedRank
from experiments.plan import Trial
from experiments.training.splits import sampled
from experiments.training.study_context import StudyContext
from workloads.checks import check_metrics, check_outputs, check_per_example
from workloads.ghost import has_batch_norm

Kind = Literal["module", "stacked"]

LEAST_MODELS = 4
"""A stack saves nothing with fewer trials in a study."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Up to where a stack of models is the faster engine."""

    multiply_adds: int
    """Average multiply-adds of a matrix product in one model's forward pass on one global batch."""
    parameters: int
    with_attention: int
    """As ``multiply_adds``, for a model with attention, whose products are many and small."""


LIMITS: Mapping[str, Limits] = {
    "cpu": Limits(multiply_adds=2**22, parameters=2**17, with_attention=2**23),
    # On an H200 a stack was 1.5 times as fast at 2^30.6 multiply-adds, and as fast at 2^32.6; the
    # others are not measured: a small model leaves a GPU idle up to far more work.
    "cuda": Limits(multiply_adds=2**32, parameters=2**22, with_attention=2**28),
}


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The matrix products and convolutions of a forward pass."""

    products: int
    multiply_adds: float
    """Multiply-adds of all of them, per example."""
    attention: bool
    """Whether there is attention among them."""

    @classmethod
    def of(cls, context: StudyContext, model: nn.Module) -> Arithmetic:
        """Count them in one forward pass of ``model``."""
        batch = context.small_batch()
        with torch.random.fork_rng(), torch.no_grad(), _Counter() as counter:
            context.workload.forward(model, batch)
        return cls(
            products=counter.products,
            multiply_adds=counter.flops / 2 / len(batch[0]),
            attention=counter.attention,
        )


_CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def _count_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    count: int = sdpa_flop_count(query.shape, key.shape, value.shape)
    return count


class _Counter(TorchDispatchMode):
    """Adds up what torch's own counter knows of each operation, and how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.flops, self.attention = 0, 0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if func.overloadpacket is _CPU_ATTENTION:
            count = _count_attention  # torch counts it from 2.15 on
        if count is not None:
            self.products += 1
            self.attention |= "attention" in func.overloadpacket.__name__
            self.flops += count(*args, **(kwargs or {}), out_val=result)
        return result


_ENGINES: dict[str, type[Engine]] = {"module": ModuleEngine, "stacked": StackedEngine}
_refusals: dict[Any, str | None] = {}


def make_engine(kind: str, context: StudyContext, trials: Sequence[Trial]) -> Engine:
    """The engine ``kind``; ``auto``: the one that ``choose`` names.

    Raises:
        ExperimentError: ``stacked`` was asked for and the workload cannot be stacked.
    """
    if kind == "auto":
        kind = context.layout.ranks.agree(choose(context, trials))
    elif kind == "stacked" and (reason := optimizer_refusal(context, trials)):
        message = f"optimizer {context.optimizer.name} cannot be stacked: {reason}"
        raise ExperimentError(message, hint="engine: module trains one model at a time")
    elif kind == "stacked" and (reason := stacking_refusal(context, trials)):
        message = f"workload {context.workload.name} cannot be stacked: {reason}"
        raise ExperimentError(message, hint="engine: module trains it one model at a time")
    return _ENGINES[kind](context, trials)


def choose(context: StudyContext, trials: Sequence[Trial]) -> Kind:
    """The engine that trains all packs of this study: the same on every machine."""
    if preferred(context, trials[0]) == "module" or stacking_refusal(context, trials) is not None:
        return "module"
    return "stacked"


def preferred(context: StudyContext, trial: Trial) -> Kind:
    """The faster engine by the rule, whether the workload can be stacked or not."""
    if context.study.trials < LEAST_MODELS or not context.optimizer.stacks:
        return "module"
    model = context.model(trial)
    limits = LIMITS.get(context.device.type, LIMITS["cuda"])
    if sum(p.numel() for p in model.parameters()) > limits.parameters:
        return "module"
    arithmetic = Arithmetic.of(context, model)
    work = arithmetic.multiply_adds * context.study.mean_batch_size
    limit = limits.with_attention if arithmetic.attention else limits.multiply_adds
    if arithmetic.attention and context.optimizer.multiplies_matrices:
        limit *= 2
    return "module" if work > limit * arithmetic.products else "stacked"


def stacking_refusal(context: StudyContext, trials: Sequence[Trial]) -> str | None:
    """Why these trials cannot be stacked; ``None``: they can. Computed once per process and study.

    Two things rule it out by themselves: random numbers that cannot be tied to examples, and state
    that a forward pass changes (batch norm) or that differs between models. All other limits of
    ``torch.func`` show in a trial run.
    """
    if not context.layout.stacks:
        return f"layout {context.layout.name} trains one model at a time"
    if any(context.tuned_fields(t) for t in trials):
        return "a tuned metaparameter is a field of the workload"
    study = context.study
    if context.precision.scales:
        return "each model's loss is scaled by itself in float16"
    if reason := context.techniques.stacking_refusal(trials[0].metaparameters):
        return reason
    key = (
        context.identity,
        json.dumps(optimizer_identity(context.optimizer, study.workload.base)),
        study.batch_size,
        study.ramp,
        study.layout,
        context.device,
    )
    if key not in _refusals:
        _refusals[key] = _refusal(context, trials)
    return _refusals[key]


def _refusal(context: StudyContext, trials: Sequence[Trial]) -> str | None:
    model = context.model(trials[0])
    other = dict(context.model(trials[-1]).named_buffers())
    if has_batch_norm(model):
        return "its batch norm keeps running statistics"
    if any(not torch.equal(b, other[n]) for n, b in model.named_buffers()):
        return "its buffers differ between initializations"
    unsupported = RandomDraws.of(context, model).unsupported
    if unsupported is not None:
        return f"its forward pass draws random numbers that do not follow examples ({unsupported})"
    before = _remembered(model)  # after a pass, which may fill caches
    RandomDraws.of(context, model)
    for name, value in _remembered(model).items():
        was = before.get(name)
        if value is not was and (torch.is_tensor(value) or value != was):
            return f"a forward pass changes {name} of its model"
    if reason := optimizer_refusal(context, trials):
        return f"optimizer {context.optimizer.name}: {reason}"
    # Ranks are tried each by itself: what one process remembers, another may have to try.
    ranks = context.layout.ranks
    layout = copy(context.layout).join(UnconnectedRank(ranks.rank, ranks.size))
    context = replace(context, layout=layout)
    try:
        engine = StackedEngine(context, trials)
        engine.advance(1)
        name = context.evaluated[0]
        few = sampled(context.splits, name)
        # One chunk: its trace serves the trials' evaluations, whose other chunks cost no less here.
        few[name] = few[name].head(engine.chunk)
        engine.context = replace(context, splits=few)
        engine.evaluate(name)
    # What the user's model does under vmap can fail in any way; the reason is reported.
    except Exception as error:
        return f"torch.func: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None


def _remembered(model: nn.Module) -> dict[str, Any]:
    """The buffers of a model, and attributes of its modules that are numbers."""
    kept = dict[str, Any](model.named_buffers())
    for name, module in model.named_modules():
        of_module = vars(module).items()
        kept |= {
            f"{name}.{key}".strip("."): x for key, x in of_module if isinstance(x, int | float)
        }
    return kept


def optimizer_refusal(context: StudyContext, trials: Sequence[Trial]) -> str | None:
    """Why the optimizer cannot update a stack of models; ``None`` if it can.

    Two models take two steps in a stack, whose rows change their places in between, and alone. What
    the optimizer raises alone is its own error, and passes unchanged.
    """
    if not isinstance(context.optimizer, UserOptimizer):
        return None
    pack = [trials[0], trials[-1]]
    models = [context.model(trial) for trial in pack]
    stack = Stack.of(models, width_of(len(pack)))
    alone = [_alone(context, trial, model) for trial, model in zip(pack, models, strict=True)]
    try:
        _step_twice(context, pack, stack)
    # What a user's optimizer does to views of a stack can fail in any way; the reason is reported.
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    for row, alone_run in enumerate(reversed(alone)):
        if alone_run.differs({name: view[row] for name, view in stack.views.items()}):
            return (
                "its steps differ from those of a single model (parameters change their place "
                "in memory)"
            )
    return None


def _alone(context: StudyContext, trial: Trial, model: torch.nn.Module) -> OptimizerRun:
    alone_run = OptimizerRun(context.optimizer, trial.metaparameters, model, context.workload)
    for _ in range(2):
        alone_run.step()
    return alone_run


def _step_twice(context: StudyContext, pack: Sequence[Trial], stack: Stack) -> None:
    """Afterwards the rows of the stack are in reverse order."""
    update = make_update(context, pack, stack)
    start = stack.weights.clone()
    learning_rates = [[context.optimizer.learning_rate(t.metaparameters)] for t in pack]
    rates = torch.tensor(learning_rates, dtype=torch.float64, device=context.device)
    reverse = torch.tensor([1, 0], device=context.device)
    for multiple in GRADIENTS[:2]:
        stack.gradient.copy_(start * multiple)
        update.step(rates)
        if multiple == GRADIENTS[0]:
            stack.keep(reverse)
            update.keep(reverse)
            start, rates = start[reverse], rates[reverse]


def check_contract(context: StudyContext, trial: Trial) -> None:
    """One forward of a fresh model: loss and metrics are one value an example.

    Raises:
        WorkloadError: they are not.
    """
    workload, model = context.workload_of(trial), context.model(trial)
    techniques, batch = context.techniques_of(trial), context.small_batch()
    count = len(batch[0])
    change = techniques.augmentation(trial.seed)
    trained = context.train.fetch(torch.arange(count), training=True, change=change)
    with torch.random.fork_rng(), torch.no_grad(), context.autocast():
        output = techniques.output(workload, model, batch)
        techniques.check(workload, model, batch)
        loss = techniques.loss(workload, model, trained)
        check_per_example(loss, count, "loss", workload)
        check_metrics(workload.metrics(output, batch), count, workload)
        check_outputs(output, batch, workload)
