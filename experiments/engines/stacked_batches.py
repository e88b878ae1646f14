"""The batches of a stack of models: the examples of each row, fetched together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.plan import Trial
from experiments.training.batch_order import BatchOrder
from experiments.training.splits import Order
from experiments.training.streams import ExampleStream
from experiments.training.study_context import StudyContext
from workloads import Batch

_PREFETCH_BYTES = 2**21
"""A batch that has been fetched is read from a core's caches."""
_INDEX_BYTES = 2**22


@dataclass(frozen=True, kw_only=True)
class DrawnRows:
    """What the rows of a stack see next."""

    orders: Sequence[Order]
    trials: Sequence[Trial]
    steps: Sequence[int]
    """Steps that each has taken; the first one tells the batch size."""
    active: int
    """Rows that are read: the first ones."""


class StackedBatches:
    """Fetches batches for a stack."""

    def __init__(self, context: StudyContext) -> None:
        self.context = context
        self.ahead = 1
        """Steps whose examples are fetched at once."""

    def take(self, rows: DrawnRows, steps: int) -> Iterator[tuple[int, Batch]]:
        """This rank's batches of the next steps, ``(models, share, …)``, counted from 0."""
        split, part = self.context.train, self.context.part(rows.steps[0])
        width, orders, size = len(rows.orders), rows.orders, part.stop - part.start
        if (
            split.random
            or isinstance(orders[0], ExampleStream)
            or self.context.techniques.define("augment")
        ):
            trials = rows.trials[: rows.active]
            changes = [self.context.techniques_of(t).augmentation(t.seed) for t in trials]
            for done in range(steps):
                drawn = [
                    split.fetch_step(order, part, trial.seed, step + done, change)
                    for order, trial, step, change in zip(
                        orders[: rows.active], trials, rows.steps[: rows.active], changes,
                        strict=True,
                    )
                ]  # fmt: skip
                # Rows behind the active trials are unread: a stream is not read for them.
                drawn += drawn[-1:] * (width - len(drawn))
                yield done, tuple(torch.stack(x) for x in zip(*drawn, strict=True))
            return
        if size == len(split) and all(isinstance(o, BatchOrder) and o.repeat for o in orders):
            # The full training set, in the same order: one copy for all models.
            whole = split.fetch(torch.arange(size), training=True)
            shared = tuple(x.expand(width, *x.shape) for x in whole)
            yield from ((done, shared) for done in range(steps))
            return
        most = max(1, _INDEX_BYTES // max(1, 8 * width * size))
        done, ahead = 0, torch.empty(0)
        while done < steps:
            # An order takes as long for many steps as for one.
            ahead = ahead if len(ahead) else self.indices(rows, done, min(most, steps - done))
            count = min(self.ahead, len(ahead))
            batch = split.fetch(ahead[:count].reshape(-1), training=True)
            ahead = ahead[count:]
            # Many small batches are fetched at once: a gather costs as much as a small step.
            size_of_step = sum(x.numel() * x.element_size() for x in batch) // count
            self.ahead = max(1, min(256, _PREFETCH_BYTES // max(size_of_step, 1)))
            for i, of_step in enumerate(
                zip(*(x.view(count, width, size, *x.shape[1:]) for x in batch), strict=True)
            ):
                yield done + i, of_step
            done += count

    def indices(self, rows: DrawnRows, done: int, count: int) -> Tensor:
        """The examples of ``count`` steps from ``done`` on, ``(count, models, share)``."""
        part = self.context.part(rows.steps[0])
        drawn = [
            order.batches(step + done, count)[:, part]
            for order, step in zip(rows.orders, rows.steps, strict=True)
            if not isinstance(order, ExampleStream)
        ]
        return torch.stack(drawn, dim=1)
