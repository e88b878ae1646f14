"""The forward passes of a training step: micro-batches with their random numbers and weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
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
        self._divided: dict[int, tuple[int, int, int, bool]] = {}

    def of(
        self,
        batch: Batch,
        step: int,
        weights: Tensor | None = None,
        scale: Callable[[Tensor], Tensor] | None = None,
    ) -> Iterator[ForwardPass]:
        """The passes of a step, of whose global batch this rank has ``batch``.

        Args:
            weights: of these examples in the mean loss; equal ones unless given.
            scale: multiplies the weights, so that the gradient does not underflow.
        """
        whole = self.context.study.batches.size(step)
        if whole not in self._divided:
            self._divided[whole] = self._divide(step, whole)
        first, most, count, everywhere = self._divided[whole]
        for i in range(count):
            part = batch
            if count > 1:
                part = tuple(x[i * most : (i + 1) * most] for x in batch)
            examples = part[0].shape[0]
            of_part: Callable[[torch.dtype], Tensor] = partial(self._weights, examples, whole)
            if weights is not None:
                of_part = weights[i * most : (i + 1) * most].to
            drawing = partial(self._drawing, step, first + i * most, examples)
            yield ForwardPass(
                batch=part,
                loss=partial(self._loss, part, drawing),
                drawing=drawing,
                weights=_scaled(of_part, scale),
                sums=everywhere and i == count - 1,
            )

    def _divide(self, step: int, whole: int) -> tuple[int, int, int, bool]:
        """Of a global batch of so many examples: the place of this rank's first one, most examples
        of a pass, this rank's passes, and whether every rank has one."""
        layout, unit = self.context.layout, self.context.ghost_batch or 1
        most = layout.micro_batch(whole, self.micro_batch, unit)
        count = layout.passes(whole, most, unit)
        return self.context.part(step).start, most, count, whole // unit >= layout.data_ranks

    @contextmanager
    def _drawing(
        self, step: int, start: int, examples: int, modules: Collection[str] = ()
    ) -> Iterator[None]:
        context, draws = self.context, self.draws
        drawing = draws.drawing(
            self.trial.seed,
            step,
            start,
            examples,
            context.device,
            self.cache,
            first=draws.first_of(modules) if modules else 0,
            part=context.layout.activation_part,
        )
        with drawing, context.autocast():
            yield

    def _loss(self, batch: Batch, drawing: Any, model: Any) -> Tensor:
        with drawing():
            loss = self.techniques.loss(self.workload, model, batch)
        if loss.shape != batch[0].shape[:1]:
            check_per_example(loss, len(batch[0]), "loss", self.workload)
        return loss

    def _weights(self, examples: int, whole: int, dtype: torch.dtype) -> Tensor:
        key, device = (examples, whole, dtype), self.context.device
        if key not in self.cache:
            self.cache[key] = torch.full((examples,), 1 / whole, dtype=dtype, device=device)
        return self.cache[key]


def _scaled(
    weights: Callable[[torch.dtype], Tensor], scale: Callable[[Tensor], Tensor] | None
) -> Callable[[torch.dtype], Tensor]:
    return weights if scale is None else lambda dtype: scale(weights(dtype))
