"""The forward passes of a training step: micro-batches with their random numbers and weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.engines.randomness import RandomDraws
from experiments.parallel.base import ForwardPass
from experiments.plan import Trial
from experiments.techniques import Techniques
from experiments.training.study_context import StudyContext
from workloads import Batch, Workload
from workloads.checks import check_per_example


class ForwardPasses:
    """Those of one trial."""

    def __init__(
        self,
        context: StudyContext,
        trial: Trial,
        techniques: Techniques,
        draws: RandomDraws,
        micro_batch: int,
        cache: dict[Any, Tensor],
    ) -> None:
        """
        Args:
            draws: what a forward pass of the trial's model draws.
            micro_batch: most examples of a pass.
            cache: of what depends on shapes alone; the runs of an engine share it.
        """
        self.context, self.trial, self.techniques = context, trial, techniques
        self.workload: Workload = context.workload_of(trial)
        self.draws, self.micro_batch, self.cache = draws, micro_batch, cache

    def of(self, batch: Batch, step: int, weights: Tensor | None = None) -> Iterator[ForwardPass]:
        """The passes of a step, of whose global batch this rank has ``batch``.

        ``weights``: of these examples in the mean loss; equal ones unless given.
        """
        context, most = self.context, self.micro_batch
        whole, first = context.study.batches.size(step), context.part(step).start
        unit = context.ghost_batch or 1
        most = context.layout.micro_batch(whole, most, unit)
        count = context.layout.passes(whole, most, unit)
        everywhere = whole // unit >= context.layout.data_ranks
        for i in range(count):
            part = batch
            if len(batch[0]) > most or i:
                part = tuple(x[i * most : (i + 1) * most] for x in batch)
            drawing = partial(self._drawing, step, first + i * most, len(part[0]))
            yield ForwardPass(
                batch=part,
                loss=partial(self._loss, part, drawing),
                drawing=drawing,
                weights=partial(self._weights, len(part[0]), whole)
                if weights is None
                else weights[i * most : (i + 1) * most].to,
                sums=everywhere and i == count - 1,
            )

    @contextmanager
    def _drawing(
        self, step: int, start: int, examples: int, modules: Collection[str] = ()
    ) -> Iterator[None]:
        context, seed = self.context, self.trial.seed
        first = self.draws.first_of(modules) if modules else 0
        drawing = self.draws.drawing(
            seed,
            step,
            start,
            examples,
            context.device,
            self.cache,
            first=first,
            part=context.layout.activation_part,
        )
        with drawing, context.autocast():
            yield

    def _loss(self, batch: Batch, drawing: Any, model: Any) -> Tensor:
        with drawing():
            loss = self.techniques.loss(self.workload, model, batch)
        if loss.dim() != 1 or len(loss) != len(batch[0]):
            check_per_example(loss, len(batch[0]), "loss", self.workload)
        return loss

    def _weights(self, examples: int, whole: int, dtype: torch.dtype) -> Tensor:
        key, device = (examples, whole, dtype), self.context.device
        if key not in self.cache:
            self.cache[key] = torch.full((examples,), 1 / whole, dtype=dtype, device=device)
        return self.cache[key]
