"""The batches that models train on: the examples of several steps, and of all rows of a stack,
fetched together."""

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
class Row:
    """A trial with its order of examples and the steps that it has taken, perhaps in a stack."""

    trial: Trial
    order: Order
    step: int = 0


class Batches:
    """Fetches batches for a stack, or for one model."""

    def __init__(self, context: StudyContext, *, stacked: bool) -> None:
        self.context, self.stacked = context, stacked
        self.ahead = 1
        """Steps whose examples are fetched at once."""

    def take(self, rows: Sequence[Row], active: int, steps: int) -> Iterator[tuple[int, Batch]]:
        """This rank's batches of the next steps of ``rows``, each with its number:
        ``(share, …)``, of a stack ``(models, share, …)``.

        ``active``: rows that are read, the first ones. The first one's step tells the batch size.
        """
        split, part = self.context.train, self.context.part(rows[0].step)
        width, size = len(rows), part.stop - part.start
        shape = (width, size) if self.stacked else (size,)
        if not gathers(self.context):
            read = rows[:active]
            techniques = [self.context.techniques_of(row.trial) for row in read]
            changes = [t.augmentation(r.trial.seed) for t, r in zip(techniques, read, strict=True)]
            for done in range(steps):
                drawn = [
                    split.fetch_step(row.order, part, row.trial.seed, row.step + done, change)
                    for row, change in zip(read, changes, strict=True)
                ]
                # Rows behind the active trials are unread: a stream is not read for them.
                drawn += drawn[-1:] * (width - len(drawn))
                joined = (torch.stack(x) for x in zip(*drawn, strict=True))
                yield done, tuple(joined) if self.stacked else drawn[0]
            return
        orders, full = [row.order for row in rows], self.stacked and size == len(split)
        if full and all(isinstance(order, BatchOrder) and order.repeat for order in orders):
            # The full training set, in the same order: one copy for all models.
            whole = split.fetch(torch.arange(size), training=True)
            shared = tuple(x.expand(width, *x.shape) for x in whole)
            yield from ((done, shared) for done in range(steps))
            return
        most = max(1, _INDEX_BYTES // max(1, 8 * width * size))
        done, ahead = 0, torch.empty(0)
        while done < steps:
            # An order takes as long for many steps as for one.
            ahead = ahead if len(ahead) else indices_of(rows, part, done, min(most, steps - done))
            count = min(self.ahead, len(ahead))
            batch = split.fetch(ahead[:count].reshape(-1), training=True)
            ahead = ahead[count:]
            # Many small batches are fetched at once: a gather costs as much as a small step.
            size_of_step = sum(x.numel() * x.element_size() for x in batch) // count
            self.ahead = max(1, min(256, _PREFETCH_BYTES // max(size_of_step, 1)))
            by_step = (x.view(count, *shape, *x.shape[1:]).unbind() for x in batch)
            yield from enumerate(zip(*by_step, strict=True), start=done)
            done += count


def gathers(context: StudyContext) -> bool:
    """Whether the examples of a step are those of the split at some indices, as they are."""
    return not (context.splits["train"].random or context.techniques.define("augment"))


def indices_of(rows: Sequence[Row], part: slice, done: int, count: int) -> Tensor:
    """A share's examples of ``count`` steps from ``done`` on, ``(count, models, share)``."""
    drawn = [
        row.order.batches(row.step + done, count)[:, part]
        for row in rows
        if not isinstance(row.order, ExampleStream)
    ]
    return torch.stack(drawn, dim=1)
