"""The module engine: each model by itself, one after the other (``SingleModel``).

The plain way, and the twin of every faster one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.convolutions import accepts_channels_last
from experiments.engines.base import Engine, gather
from experiments.engines.randomness import RandomDraws
from experiments.engines.single_model import SingleModel
from experiments.plan import Trial
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import Parts
from experiments.training.micro_batch import chunk_size, micro_batch
from experiments.training.study_context import StudyContext


class ModuleEngine(Engine):
    """One model at a time: each trial is trained in turn, from its own step."""

    kind = "module"

    def __init__(self, context: StudyContext, trials: Sequence[Trial]) -> None:
        super().__init__(context, trials)
        first = context.model(trials[0])
        self._draws: dict[str, RandomDraws] = {}
        # Numbers that depend on how a batch is divided are drawn for the whole, where that fits.
        divisible = not self._drawn(trials[0], first).unsupported
        self.micro = micro_batch(context, first, models=1, divisible=divisible)
        self.chunk = chunk_size(context, first, models=1)
        self._channels_last = accepts_channels_last(context, first, trials[0])
        self._cache: dict[Any, Tensor] = {}
        self.runs = [self._start(trial) for trial in trials]

    def _start(self, trial: Trial) -> SingleModel:
        return SingleModel(
            self.context,
            trial,
            self.micro,
            self._draws_of,
            self._cache,
            channels_last=self._channels_last,
        )

    def _draws_of(self, trial: Trial, model: nn.Module) -> RandomDraws:
        """
        Raises:
            WorkloadError: the numbers depend on how a batch is divided, and it is.
        """
        context, draws = self.context, self._drawn(trial, model)
        if context.layout.staged:
            draws.refuse_stages(context)
        if context.layout.data_ranks > 1 or context.study.batches.largest > self.micro:
            draws.refuse_parts(context)
        return draws

    def _drawn(self, trial: Trial, model: nn.Module) -> RandomDraws:
        """Tried once for each setting of tuned fields, since a field may be a dropout rate."""
        context = self.context
        techniques = context.techniques_of(trial)
        key = json.dumps([context.tuned_fields(trial), techniques.tuned], sort_keys=True)
        if key not in self._draws:
            workload = context.workload_of(trial)
            self._draws[key] = RandomDraws.of(context, model, workload, techniques)
        return self._draws[key]

    @property
    def steps(self) -> list[int]:
        return [run.step for run in self.runs]

    def advance(self, steps: int) -> None:
        forked = torch.random.fork_rng(enabled=any(run.draws.unsupported for run in self.runs))
        with forked, self.context.precision.products():
            for run in self._each(self.runs):
                run.advance(steps)

    def _each(self, runs: Sequence[SingleModel]) -> Iterator[SingleModel]:
        """One after the other, each as the ``current`` one; what raises stays so."""
        for run in runs:
            self.current = run.trial.id
            yield run
        self.current = None

    @torch.no_grad()
    def evaluate(
        self,
        split: str,
        rows: Sequence[int] | None = None,
        parts: Parts | None = None,
        tests: Sequence[MissTest] = (),
    ) -> list[dict[str, float]]:
        runs = self.runs if rows is None else [self.runs[i] for i in rows]
        with self.context.precision.products(), torch.random.fork_rng(devices=[]):
            return [
                run.evaluate(split, self.chunk, parts, tests[i : i + 1])
                for i, run in enumerate(self._each(runs))
            ]

    def recorded(self, rows: Sequence[int]) -> list[dict[str, float]]:
        hooks = (self.runs[i].hooks for i in rows)
        return [{name: float(value) for name, value in h.recorded().items()} for h in hooks]

    def skipped_steps(self, row: int) -> int | None:
        run = self.runs[row]
        return None if run.scaler is None else run.skipped

    @torch.no_grad()
    def finite(self) -> list[bool]:
        layout, losses = self.context.layout, torch.stack([run.loss_sum for run in self.runs])
        weights = [
            all(bool(layout.local(p).isfinite().all()) for p in run.model.parameters())
            for run in self.runs
        ]
        # What is not finite on one rank is not finite in the sum: all ranks decide alike.
        broken = ~torch.tensor(weights, device=losses.device)
        losses = layout.all_reduce(losses.masked_fill(broken, torch.nan))
        flags: list[bool] = layout.all_true(losses.isfinite()).tolist()
        return flags

    def keep(self, rows: Sequence[int]) -> None:
        self.trials = [self.trials[i] for i in rows]
        self.runs = [self.runs[i] for i in rows]

    def add(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        self.runs += [self._start(trial) for trial in trials]

    def copy(self, rows: Sequence[int]) -> list[Any]:
        return [gather(self.runs[i].copy()) for i in rows]

    def restore(self, row: int, state: Any) -> None:
        self.runs[row].restore(state)

    def weights(self, row: int) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = gather(self.runs[row].copy()["model"])
        return dict(weights)

    @torch.no_grad()
    def measured(self, row: int) -> dict[str, Tensor]:
        with self.runs[row].measured_weights():
            return self.weights(row)
