"""Splits on the device: tensors that are indexed or computed there, or a streamed ``Dataset``.

Training batches that draw random numbers (augmentation, a ``Dataset`` with random transforms) have
bits that depend on the trial's seed, the step and the example's place in the global batch, never on
how that batch is laid out over workers and micro-batches, nor on which process reads an example
(``experiments.training.prefetch``).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

import workloads
from experiments.batch_sizes import BatchSizes
from experiments.errors import ExperimentError
from experiments.plan import WorkloadRef
from experiments.seeds import derive
from experiments.techniques.composed import Augmentation
from experiments.training.batch_order import BatchOrder, BranchedOrder, SequentialOrder
from experiments.training.prefetch import Reader
from experiments.training.streams import ExampleStream, check_stream, collate
from workloads import Batch, TokenStream, Workload
from workloads.checks import check_splits, length_of
from workloads.generated.split import ENDLESS, GeneratedSplit

_KEPT_BYTES = 2**22
"""Bytes of a split that is kept as evaluations read it."""
_SAMPLE = 1024
"""Examples of a streamed split that a probe reads."""


def _cast(batch: Batch, dtype: torch.dtype) -> Batch:
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in batch)


Order = BatchOrder | SequentialOrder | ExampleStream
"""Which examples a trial sees at each step (``Split.order``)."""


class Split:
    """``len(split)`` examples of one split; 2^62 of one without a known end."""

    def __init__(
        self,
        data: Any,
        workload: Workload,
        device: torch.device,
        dtype: torch.dtype,
        name: str = "train",
    ) -> None:
        self.workload, self.device, self.dtype = workload, device, dtype
        self.resident = isinstance(data, (tuple, TokenStream))
        self.generated = isinstance(data, GeneratedSplit)
        self.on_device = self.resident or self.generated
        self.iterable = isinstance(data, IterableDataset)
        self._data: Any = data
        if isinstance(data, tuple):
            self._data = tuple(x.to(device) for x in data)
        elif isinstance(data, TokenStream):
            self._data = data.to(device)
        size = length_of(data)
        self.endless = size is None
        self._size = ENDLESS if size is None else size
        self.random = workload.augments or not self.on_device
        """Whether a training batch draws random numbers."""
        self.name = f"split {name!r} of {workload.name}"
        """What errors call it."""
        self._beside: tuple[Tensor, ...] = ()
        self._first: list[Any] = []
        self._kept: dict[Hashable, list[tuple[Tensor, Batch]]] = {}
        streamed = not self.on_device and not self.iterable
        self._reader = Reader(data, device, self.name) if streamed else None

    def __len__(self) -> int:
        return self._size

    def beside(self, tensors: tuple[Tensor, ...]) -> Split:
        """The same with rows of ``tensors``, one an example, at the end of a training batch."""
        if not tensors:
            return self
        joined = copy.copy(self)
        joined._beside = tensors
        return joined

    def head(self, examples: int) -> Split:
        """The first ``examples`` of it, or all."""
        part = copy.copy(self)
        part._size, part._kept = min(examples, self._size), {}
        return part

    def order(
        self,
        seed: int,
        batch_size: int | BatchSizes,
        *,
        repeat: bool = True,
        branch: tuple[int, int] | None = None,
    ) -> Order:
        """The order in which a trial with this seed sees the split.

        Args:
            batch_size: of all steps, or of each.
            repeat: whether it may see an example more than once.
            branch: up to which step the order is that of another seed: (the seed, the step).

        Raises:
            ExperimentError: batch sizes that change, of a split that is read in sequence.
        """
        if self.generated or self.iterable:
            if isinstance(batch_size, BatchSizes):
                raise ExperimentError(
                    f"the batch size grows, and {self.name} is read in sequence",
                    hint="give training data that can be read in any order, or a fixed batch size",
                )
            if self.generated:
                return SequentialOrder(seed, batch_size)
            return ExampleStream(self._data, seed, batch_size, self.name)
        if isinstance(batch_size, BatchSizes) and branch is not None:
            before, at = branch
            return BranchedOrder(seed, len(self), batch_size, before=before, step=at, repeat=repeat)
        return BatchOrder(seed, len(self), batch_size, repeat=repeat)

    @property
    def nbytes(self) -> int:
        """Bytes of it that lie on the device; none of a streamed one."""
        if isinstance(self._data, TokenStream):
            return self._data.nbytes
        return sum(x.nbytes for x in self._data) if self.resident else 0

    def fetch(
        self, indices: Tensor, *, training: bool, change: Augmentation | None = None
    ) -> Batch:
        """The examples ``indices`` (any order), transformed, floats in the trial's precision.

        ``change``: what techniques make of a batch of step 0.
        """
        raw = self._raw(indices)
        if change is not None:
            return self._changed(raw, change)
        batch = self._finish(raw, training=training)
        if not training or not self._beside:
            return batch
        where = indices.to(self.device)
        return (*batch, *(tensor.index_select(0, where) for tensor in self._beside))

    def fetch_parts(
        self, parts: Iterable[Tensor], kept_as: Hashable | None = None
    ) -> Iterator[tuple[Tensor, Batch]]:
        """Each of ``parts`` (indices) with its examples, for evaluation; a streamed split is read
        ahead.

        ``kept_as``: a name of these parts, under which a small split keeps what is read.
        """
        if kept_as is not None and self.resident and self.nbytes <= _KEPT_BYTES:
            if kept_as not in self._kept:
                self._kept[kept_as] = list(self.fetch_parts(parts))
            yield from self._kept[kept_as]
            return
        if self._reader is None:
            yield from ((indices, self.fetch(indices, training=False)) for indices in parts)
            return
        for indices, raw in self._reader.evaluation(parts):
            yield indices, self._finish(raw, training=False)

    def close(self) -> None:
        """End the processes that read a streamed split; reading again starts new ones."""
        if self._reader is not None:
            self._reader.close()

    def fetch_step(
        self, order: Order, part: slice, seed: int, step: int, change: Augmentation | None = None
    ) -> Batch:
        """``part`` of the global batch of one trial's step, augmented.

        ``change``: of the whole global batch, which is read for it.
        """
        if change is not None:
            whole = self._changed(self._drawn(order, slice(None), seed, step), change, step)
            return tuple(x[part] for x in whole)
        return self._finish(self._drawn(order, part, seed, step), training=True)

    def _changed(self, raw: Batch, change: Augmentation, step: int = 0) -> Batch:
        count, stored = len(raw), change.stored(raw, step)
        finished = self._finish(stored[:count], training=True)
        # What techniques append, labels of partners, is made again of the transformed labels.
        if len(stored) > count:
            stored = change.stored((raw[0], *finished[1:]), step)
        batch = (*finished, *stored[len(finished) :])
        return _cast(change.transformed(batch, step), self.dtype)

    def _drawn(self, order: Order, part: slice, seed: int, step: int) -> Batch:
        """``part`` of the global batch of one trial's step as it is stored, augmented.

        Every worker augments the whole global batch, so that each example's random numbers are the
        same in every layout.
        """
        if not self.workload.augments:
            return self._stored(order, part, seed, step)
        generator = torch.Generator(self.device).manual_seed(derive(seed, "augment", step))
        whole = self.workload.augment(self._stored(order, slice(None), seed, step), generator)
        return tuple(x[part] for x in whole)

    def _stored(self, order: Order, part: slice, seed: int, step: int) -> Batch:
        """The same before the workload augments it; a streamed one is read example by example, each
        from its own seed."""
        if isinstance(order, ExampleStream):
            return self._collate(order.batch(step)[part])
        if self._reader is not None:
            return self._reader.training(order, part, seed, step)
        return self._raw(order.batches(step, 1)[0][part])

    def _raw(self, indices: Tensor) -> Batch:
        if self._reader is not None:
            return self._reader.fetch(indices)
        if self.resident:
            where = indices.to(self.device)
            if isinstance(self._data, TokenStream):
                return self._data.windows(where)
            return tuple(x.index_select(0, where) for x in self._data)
        if self.generated:
            generated: Batch = self._data.examples(indices.to(self.device))
            return generated
        return self._collate(self._of_stream(indices.tolist()))

    def _of_stream(self, indices: list[int]) -> list[Any]:
        """Examples at the beginning of a stream, to try a model on."""
        if len(self._first) <= max(indices):
            stream = ExampleStream(self._data, 0, 1, self.name)
            self._first = [stream.batch(step)[0] for step in range(max(indices) + 1)]
        return [self._first[i] for i in indices]

    def _collate(self, examples: list[Any]) -> Batch:
        return tuple(x.to(self.device) for x in collate(examples, self.name))

    def _finish(self, batch: Batch, *, training: bool) -> Batch:
        return _cast(
            self.workload.transform(_cast(batch, self.dtype), training=training), self.dtype
        )


def load_splits(
    ref: WorkloadRef, device: str, dtype: torch.dtype
) -> tuple[Workload, dict[str, Split]]:
    """A workload and its splits, loaded once a process and shared by all packs that it trains.

    Raises:
        WorkloadError: the workload cannot be loaded, or breaks its contract.
        ExperimentError: its data are not those that the study was planned with.
    """
    loaded = workloads.load(ref.spec, ref.fields, ref.base)
    identity = workloads.identity(loaded)
    if ref.data_fingerprint not in (None, here := identity.get("data")):
        raise ExperimentError(
            f"the data of {loaded.name} ({loaded.dataset}) are not those that the sweep was begun "
            f"with: their fingerprint is {str(here)[:8]}, and it was {ref.data_fingerprint:.8}",
            hint="the same Python and the same files on all machines, unchanged during a sweep; "
            "for data that have changed give the command again",
        )
    fields, code = (json.dumps(dict(d), sort_keys=True) for d in (ref.fields, identity))
    return _load(ref.spec, fields, ref.base, code, device, dtype)


@lru_cache(maxsize=8)
def _load(
    spec: str, fields: str, base: str | None, identity: str, device: str, dtype: torch.dtype
) -> tuple[Workload, dict[str, Split]]:
    del identity  # part of the key: an edited file is loaded again
    workload = workloads.load(spec, json.loads(fields), base)
    data = check_splits(workload.data(), workload)
    if isinstance(data["train"], IterableDataset):
        check_stream(data["train"], workload)
    where = torch.device(device)
    return workload, {name: Split(d, workload, where, dtype, name) for name, d in data.items()}


def sampled(splits: Mapping[str, Split], *names: str) -> dict[str, Split]:
    """The same with few examples of the splits ``names``, where they are streamed: for probes."""
    return {
        name: split.head(_SAMPLE) if name in names and not split.resident else split
        for name, split in splits.items()
    }
