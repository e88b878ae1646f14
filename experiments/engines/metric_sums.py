"""Metrics of a whole split, whatever the chunks and the ranks: float64 sums with counts, and what a
workload computes of all outputs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from workloads import Batch, Workload
from workloads.checks import check_split_metrics

OUTPUTS = "outputs of the examples"
"""Key of outputs, ``(models, examples, …)``, beside metrics; no metric can have this name."""


class MetricSums:
    """Adds up the metrics of chunks of a split, for ``models`` models at once."""

    def __init__(
        self,
        models: int,
        device: torch.device,
        workload: Workload | None = None,
        examples: int = 0,
    ) -> None:
        """
        Args:
            workload: whose ``split_metrics`` are computed, if it has any.
            examples: of the whole split, on all ranks.
        """
        self.models, self.device = models, device
        self.workload, self.examples = workload, examples
        self.outputs: list[tuple[Tensor, Tensor, Tensor]] = []
        """Of each chunk: the places of its examples, each model's outputs, the targets."""
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}

    def add(
        self,
        metrics: Mapping[str, Any],
        indices: Tensor | int,
        batch: Batch | None = None,
        output: Any = None,
    ) -> None:
        """Add a chunk: per metric ``(models, examples)`` values, (``(models,)`` sum, count), or
        sums and counts of ``(models, examples)`` each.

        Args:
            indices: its examples, or only their number where no outputs are gathered.
            batch: the chunk itself, whose targets are gathered beside the outputs.
            output: that of a single model, where it is not among the metrics.
        """
        if output is not None and self.workload is not None and self.workload.measures_split:
            metrics = {**metrics, OUTPUTS: output.unsqueeze(0)}
        examples = indices if isinstance(indices, int) else len(indices)
        for name, value in metrics.items():
            if name == OUTPUTS and isinstance(indices, Tensor) and batch is not None:
                self.outputs.append((indices, value, batch[1]))
                continue
            total, count = value if isinstance(value, tuple) else (value, None)
            if count is None:
                count = torch.ones_like(total)
            each = torch.is_tensor(count) and count.dim() > 0
            for kept, part in ((self.sums, total), (self.counts, count)):
                added = torch.as_tensor(part, device=self.device).to(torch.float64)
                if each:
                    added = added.reshape(self.models, examples).sum(1)
                added = added.reshape(-1).expand(self.models)
                kept[name] = kept[name] + added if name in kept else added

    def means(self, all_reduce: Callable[[Tensor], Tensor]) -> list[dict[str, float]]:
        """Each model's means over all chunks of all ranks, which ``all_reduce`` sums over."""
        names = sorted(self.sums)
        sums = torch.stack([self.sums[name] for name in names])
        counts = torch.stack([self.counts[name] for name in names])
        table = all_reduce(torch.cat([sums, counts], dim=1))
        means = (table[:, : self.models] / table[:, self.models :]).T.tolist()
        whole = self._of_the_split(all_reduce)
        return [
            {**dict(zip(names, row, strict=True)), **of_model}
            for row, of_model in zip(means, whole, strict=True)
        ]

    def _of_the_split(self, all_reduce: Callable[[Tensor], Tensor]) -> list[dict[str, float]]:
        """Each model's ``split_metrics``: every rank has all outputs then, and the same numbers."""
        if self.workload is None or not self.outputs:
            return [{} for _ in range(self.models)]
        _, outputs, targets = self.outputs[0]
        whole_outputs = outputs.new_zeros(self.models, self.examples, *outputs.shape[2:])
        whole_targets = targets.new_zeros(self.examples, *targets.shape[1:])
        for indices, of_chunk, targets in self.outputs:
            places = indices.to(self.device)
            whole_outputs.index_copy_(1, places, of_chunk)
            whole_targets.index_copy_(0, places, targets)
        on_cpu = all_reduce(whole_outputs).cpu(), all_reduce(whole_targets).cpu()
        metrics = [self.workload.split_metrics(of_model, on_cpu[1]) for of_model in on_cpu[0]]
        for of_model in metrics:
            check_split_metrics(of_model, self.sums, self.workload)
        return [{name: float(value) for name, value in m.items()} for m in metrics]


def chunks(part: slice, chunk: int, count: int = 1) -> Iterator[Tensor]:
    """The examples of ``part``, a rank's share of a split, as index chunks of at most ``chunk``.

    There are at least ``count``, the last ones perhaps empty; an empty part is one empty chunk:
    every rank has the names of all metrics.
    """
    for start in range(part.start, max(part.stop, part.start + max(count, 1) * chunk), chunk):
        yield torch.arange(min(start, part.stop), min(start + chunk, part.stop))
