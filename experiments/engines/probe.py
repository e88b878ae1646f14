"""Which engine is faster here: asked once a study, by a short trial of both."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Literal

import torch

from experiments.engines.base import Engine
from experiments.engines.module import ModuleEngine, draws_random_numbers
from experiments.engines.optimizer_check import unstackable_optimizer
from experiments.engines.stacked import StackedEngine
from experiments.errors import ExperimentError
from experiments.optimizers.own import OwnOptimizer
from experiments.plan import Trial
from experiments.training.setup import Setup
from workloads.checks import check_metrics, check_per_example
from workloads.ghost import has_batch_norm

Kind = Literal["module", "stacked"]
_PROBE_SECONDS = 0.03
_ROUNDS = 3
_PROBE_MODELS = 16
_choices: dict[Any, Kind] = {}


def stackable(setup: Setup, trials: Sequence[Trial]) -> str | None:
    """Why these trials cannot be stacked; ``None``: they can.

    Two things rule it out by themselves: random numbers in the forward pass (each trial has its
    own stream) and state that a forward pass changes (batch norm) or that differs between models.
    Whatever else ``torch.func`` cannot do is found by trying.
    """
    if any(setup.tuned_fields(t) for t in trials):
        return "a tuned metaparameter is a field of the workload"
    model = setup.model(trials[0])
    other = dict(setup.model(trials[-1]).named_buffers())
    if has_batch_norm(model):
        return "its batch norm keeps running statistics"
    if any(not torch.equal(b, other[n]) for n, b in model.named_buffers()):
        return "its buffers differ between initializations"
    if draws_random_numbers(setup, model):
        return "its forward pass draws random numbers"
    if reason := unstackable_optimizer(setup, trials):
        return f"optimizer {setup.optimizer.name}: {reason}"
    try:
        engine = StackedEngine(setup, trials)
        engine.advance(1)
        engine.setup = setup.sampled(setup.evaluated[0])
        engine.evaluate(setup.evaluated[0])
    # What the user's model does under vmap can fail in any way; the reason is reported.
    except Exception as error:
        return f"torch.func: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None


def choose(setup: Setup, trials: Sequence[Trial]) -> Kind:
    """The engine that trains packs of this study faster, by a probe of both of some 0.2 s each.

    The choice is for the study, so the probe's pack is as large as the study's will be, though
    the pack at hand may be one trial. Rank 0's clock decides. Studies that differ in their
    optimizer alone are asked about once a process: curves are then compared within one engine.
    """
    usual = min(setup.study.trials, _PROBE_MODELS)
    if usual == 1:
        return "module"
    study = setup.study
    fused = isinstance(setup.optimizer, OwnOptimizer)
    tuned = sorted({name for t in trials for name in setup.tuned_fields(t)})
    alike = (study.workload.spec, str(study.workload.fields), str(study.technique), usual)
    key = (*alike, study.batch_size, study.layout, setup.device, fused, str(tuned))
    if key not in _choices:
        _choices[key] = setup.group.agree(_probe(setup, trials, usual))
    return _choices[key]


def _probe(setup: Setup, trials: Sequence[Trial], models: int) -> Kind:
    pack = [trials[i % len(trials)] for i in range(models)]
    if stackable(setup, pack) is not None:
        return "module"
    clocks = [_Clock(kind, setup, pack) for kind in ("module", "stacked")]
    for _ in range(_ROUNDS):
        for clock in clocks:
            clock.measure()
    module, stacked = clocks
    return "stacked" if stacked.least < module.least else "module"


class _Clock:
    """Seconds a step of a whole pack in one engine; the module engine's from a few models.

    The least of several timings counts, taken in turn with the other engine's: what else the
    machine does only ever makes one longer.
    """

    def __init__(self, kind: str, setup: Setup, trials: Sequence[Trial]) -> None:
        some = list(trials) if kind == "stacked" else list(trials)[:2]
        self._group, self._device = setup.group, setup.device
        self._engine = _ENGINES[kind](setup, some)
        self._share = len(some) / len(trials)
        self._engine.advance(2)
        self._steps = 1
        while self._time() < _PROBE_SECONDS:
            self._steps *= 2
        self.least = math.inf

    def measure(self) -> None:
        """Take one more timing."""
        self.least = min(self.least, self._time() / self._steps / self._share)

    def _time(self) -> float:
        began = time.perf_counter()
        self._engine.advance(self._steps)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        spent: float = self._group.agree(time.perf_counter() - began)
        return spent


_ENGINES: dict[str, type[Engine]] = {"module": ModuleEngine, "stacked": StackedEngine}


def make_engine(kind: str, setup: Setup, trials: Sequence[Trial]) -> Engine:
    """The engine ``kind``; ``auto``: the faster one.

    Raises:
        ExperimentError: ``stacked`` was asked for and the workload cannot be stacked.
    """
    if not trials:
        kind = "module"
    if kind == "auto":
        kind = choose(setup, trials)
    elif kind == "stacked" and (reason := unstackable_optimizer(setup, trials)):
        raise ExperimentError(
            f"optimizer {setup.optimizer.name} cannot be stacked: {reason}",
            hint="engine: module trains one model at a time",
        )
    elif kind == "stacked" and (reason := stackable(setup, trials)):
        raise ExperimentError(
            f"workload {setup.workload.name} cannot be stacked: {reason}",
            hint="engine: module trains it one model at a time",
        )
    return _ENGINES[kind](setup, trials)


def check_contract(setup: Setup, trial: Trial) -> None:
    """One forward of a fresh model: loss and metrics are one value an example.

    Raises:
        WorkloadError: they are not.
    """
    workload, model = setup.workload_of(trial), setup.model(trial)
    batch = setup.few()
    count = len(batch[0])
    with torch.random.fork_rng(), torch.no_grad(), setup.autocast():
        output = workload.forward(model, batch)
        check_per_example(workload.loss(output, batch), count, "loss", workload)
        check_metrics(workload.metrics(output, batch), count, workload)
