"""Metric sums: float64 sums with counts over a whole split, whatever the chunks and the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


class MetricSums:
    """Adds up the metrics of chunks of a split, for ``models`` models at once."""

    def __init__(self, models: int, device: torch.device) -> None:
        self.models, self.device = models, device
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Any], examples: int) -> None:
        """Add a chunk: per metric ``(models, examples)`` values, or (``(models,)`` sum, count)."""
        for name, value in metrics.items():
            if isinstance(value, tuple):
                total, count = value
                total = torch.as_tensor(total, device=self.device).to(torch.float64)
                total = total.reshape(-1).expand(self.models)
                count = int(count)
            else:
                total = value.to(torch.float64).reshape(self.models, examples).sum(1)
                count = examples
            self.sums[name] = self.sums[name] + total if name in self.sums else total
            self.counts[name] = self.counts.get(name, 0) + count

    def means(self, all_reduce: Callable[[Tensor], Tensor]) -> list[dict[str, float]]:
        """Each model's means over all chunks of all ranks, which ``all_reduce`` sums over."""
        names = sorted(self.sums)
        table = torch.stack(
            [torch.cat([self.sums[n], self.sums[n].new_tensor([self.counts[n]])]) for n in names]
        )
        table = all_reduce(table.contiguous())
        means = (table[:, :-1] / table[:, -1:]).T.tolist()
        return [dict(zip(names, row, strict=True)) for row in means]


def chunks(part: slice, chunk: int) -> Iterator[Tensor]:
    """The examples of ``part``, a rank's share of a split, as index chunks of at most ``chunk``.

    An empty part is one empty chunk: every rank has the names of all metrics.
    """
    for start in range(part.start, max(part.stop, part.start + 1), chunk):
        yield torch.arange(start, min(start + chunk, part.stop))
