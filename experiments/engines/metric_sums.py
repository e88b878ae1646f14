"""Metrics of a whole split, whatever the chunks and the ranks: float64 sums with counts, and what a
workload computes of all outputs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.parallel import ParallelLayout
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import Parts
from experiments.training.splits import Split
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
        workload: Workload,
        examples: int,
        watched: str | None,
    ) -> None:
        """
        Args:
            workload: whose ``split_metrics`` are computed, if it has any.
            examples: of the whole split, on all ranks.
            watched: the metric whose values are kept, for ``values``.
        """
        self.models, self.device = models, device
        self.workload, self.examples = workload, examples
        self.outputs: list[tuple[Tensor, Tensor, Tensor]] = []
        """Of each chunk: the places of its examples, each model's outputs, the targets."""
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self._watched = watched
        self._values: list[Tensor | None] = []

    def add(
        self, metrics: Mapping[str, Any], indices: Tensor, batch: Batch, output: Any = None
    ) -> None:
        """Add a chunk: per metric ``(models, examples)`` values, (``(models,)`` sum, count), or
        sums and counts of ``(models, examples)`` each.

        Args:
            indices: its examples.
            batch: the chunk itself, whose targets are gathered beside the outputs.
            output: that of a single model, where it is not among the metrics.
        """
        if output is not None and self.workload.measures_split:
            metrics = {**metrics, OUTPUTS: output.unsqueeze(0)}
        examples = len(indices)
        for name, value in metrics.items():
            if name == OUTPUTS:
                self.outputs.append((indices, value, batch[1]))
                continue
            total, count = value if isinstance(value, tuple) else (value, None)
            if name == self._watched:
                own = count is None
                kept = total.to(torch.float64).reshape(self.models, examples) if own else None
                self._values.append(kept)
            if count is None:
                count = torch.ones_like(total)
            each = torch.is_tensor(count) and count.dim() > 0
            for added_to, part in ((self.sums, total), (self.counts, count)):
                added = torch.as_tensor(part, device=self.device).to(torch.float64)
                if each:
                    added = added.reshape(self.models, examples).sum(1)
                added = added.reshape(-1).expand(self.models)
                added_to[name] = added_to[name] + added if name in added_to else added

    def values(
        self, share: slice, examples: int, all_reduce: Callable[[Tensor], Tensor]
    ) -> NDArray[np.float64] | None:
        """The watched metric since the last call, (models, examples), the examples of all ranks in
        their order; ``None``: it has no value of its own for each example.

        Args:
            share: what this rank added of so many ``examples``.
        """
        parts, self._values = [part for part in self._values if part is not None], []
        if not parts:
            return None
        table = parts[0].new_zeros(self.models, examples)
        table[:, share] = torch.cat(parts, dim=1)
        array: NDArray[np.float64] = all_reduce(table).cpu().numpy()
        return array

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
        if not self.outputs:
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


def watched(split: str, tests: Sequence[MissTest]) -> str | None:
    """The metric of ``split`` that tests read, if any does."""
    targets = [test.target for test in tests if test.target is not None]
    return targets[0].metric.removeprefix(f"{split}_") if targets else None


def measure(
    sums: MetricSums,
    data: Split,
    layout: ParallelLayout,
    chunk: int,
    metrics_of: Callable[[Batch], tuple[Mapping[str, Any], Any]],
    models: Sequence[int],
    parts: Parts | None = None,
    tests: Sequence[MissTest] = (),
) -> list[dict[str, float]]:
    """The metrics of ``models`` (positions in ``sums``): on the whole split, or on as many of its
    parts as ``tests``, one a model, have to read. A model that needs fewer than the others has the
    metrics of those that it needs.

    Args:
        chunk: most examples that are measured at a time.
        metrics_of: a batch's metrics, and a single model's output.
    """
    means: list[dict[str, float]] = [{} for _ in models]
    for number, part in enumerate(parts or (None,)):
        examples = len(data if part is None else part)
        share, passes = layout.share(examples), layout.passes(examples, chunk)
        places = chunks(share, chunk, passes)
        indices_of = places if part is None else (part[indices] for indices in places)
        name = (None if part is None else number, share.start, share.stop, chunk)
        for indices, batch in data.fetch_parts(indices_of, name):
            metrics, output = metrics_of(batch)
            sums.add(metrics, indices, batch, output)
        ended = [True for _ in models]
        if tests:
            values = sums.values(share, examples, layout.all_reduce)
            before = [test.ended for test in tests]
            for model, test in zip(models, tests, strict=True):
                test.read(None if values is None else values[model], examples)
            ended = [test.ended and not was for test, was in zip(tests, before, strict=True)]
        if any(ended):
            of_all = sums.means(layout.all_reduce)
            means = [
                of_all[model] if new else earlier
                for model, new, earlier in zip(models, ended, means, strict=True)
            ]
        if all(test.ended for test in tests):
            break
    return means


def chunks(part: slice, chunk: int, count: int = 1) -> Iterator[Tensor]:
    """The examples of ``part``, a rank's share of a split, as index chunks of at most ``chunk``.

    There are at least ``count``, the last ones perhaps empty; an empty part is one empty chunk:
    every rank has the names of all metrics.
    """
    for start in range(part.start, max(part.stop, part.start + max(count, 1) * chunk), chunk):
        yield torch.arange(min(start, part.stop), min(start + chunk, part.stop))
