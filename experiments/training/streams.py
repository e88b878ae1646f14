"""A user's ``IterableDataset`` as the training split: each trial reads it from the beginning.

The global batch of step t is the examples t·B … (t + 1)·B - 1 of the stream (of its pass, where it
has a length). Every rank reads the whole stream and keeps its part, so that the layout does not
change what a trial sees.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import IterableDataset, default_collate

from experiments.encoding import UnencodableError, encode
from experiments.seeds import derive
from results.counts import count
from workloads import Batch, Workload, WorkloadError
from workloads.checks import length_of

_CHECKED = 4
"""Examples that ``check_stream`` reads."""


class ExampleStream:
    """One trial's batches of an ``IterableDataset``, in sequence.

    A trial has a copy of the dataset to itself, and a fresh one for each pass, where the dataset
    has a length. Its position within a pass is saved by ``state_dict()`` of the dataset, or else of
    its iterator, and set by ``load_state_dict()``, as torchdata's ``StatefulDataLoader`` does it;
    where there is neither, the examples of the pass up to the position are read again. Before each
    example torch's generator is seeded by the trial's seed and the number of the example.
    """

    def __init__(
        self, dataset: IterableDataset[Any], seed: int, batch_size: int, name: str
    ) -> None:
        """``name``: of the split, in errors."""
        self.seed, self.batch_size, self.name = seed, batch_size, name
        self._source = dataset
        length = length_of(dataset)
        self.per_epoch = None if length is None else length // batch_size
        """Steps of a pass, where the dataset has a length; then another pass begins."""
        self._begin(0)

    def _epoch_of(self, step: int) -> int:
        return step // self.per_epoch if self.per_epoch else 0

    def _begin(self, epoch: int) -> None:
        """Begin a pass, with a copy of the dataset."""
        try:
            self._dataset = copy.deepcopy(self._source)
        except Exception as error:  # whatever the user's objects raise
            raise WorkloadError(
                f"{self.name} cannot be copied, and each trial reads a copy of it: {error}",
                hint="open files and connections in __iter__",
            ) from error
        if hasattr(self._dataset, "set_seed"):
            self._dataset.set_seed(derive(self.seed, "order", epoch))
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        self._epoch = epoch
        self._iterator: Iterator[Any] | None = None
        self._loaded: dict[str, Any] | None = None
        self._batch: list[Any] = []
        self._next = epoch * (self.per_epoch or 0)
        """The step whose batch the iterator gives next; ``_batch`` is that of the step before."""

    def _iterate(self) -> Iterator[Any]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(self.seed, "pass", self._epoch))
            return iter(self._dataset)

    def batch(self, step: int) -> list[Any]:
        """The examples of a step's global batch, whichever was read last.

        Raises:
            WorkloadError: the stream ends before.
        """
        if step == self._next - 1 and self._batch:
            return self._batch
        if step < self._next or self._epoch_of(step) != self._epoch:
            self._begin(self._epoch_of(step))
        while self._next <= step:
            self._batch = self._read()
            self._next += 1
        return self._batch

    def _read(self) -> list[Any]:
        step, examples, self._loaded = self._next, [], None
        if self._iterator is None:
            self._iterator = self._iterate()
        with torch.random.fork_rng(devices=[]):
            for number in range(step * self.batch_size, (step + 1) * self.batch_size):
                torch.default_generator.manual_seed(derive(self.seed, "example", number))
                try:
                    examples.append(next(self._iterator))
                except StopIteration:
                    within = step - self._epoch * (self.per_epoch or 0)
                    raise self._ended(within * self.batch_size + len(examples), step) from None
        return examples

    def _ended(self, examples: int, step: int) -> WorkloadError:
        if self.per_epoch is not None:
            return WorkloadError(
                f"{self.name} has a length of {length_of(self._dataset):,} and ended after "
                f"{count(examples, 'example')}",
                hint="__len__ must be the number of examples of a pass",
            )
        return WorkloadError(
            f"{self.name} ended after {count(examples, 'example')}, in step {step + 1:,} at batch "
            f"size {self.batch_size}",
            hint="let __iter__ go on without end, give the dataset a __len__ (then it is read "
            "in epochs), or lower the budget",
        )

    def state(self) -> dict[str, Any] | None:
        """What continues the stream here without reading it again; ``None`` if it has no such."""
        if self._loaded is not None:  # nothing has been read since
            return self._loaded
        holder: Any = self._dataset if _stateful(self._dataset) else self._iterator
        if self._iterator is None or not _stateful(holder):
            return None
        return {"step": self._next, "state": copy.deepcopy(holder.state_dict())}

    def load(self, state: dict[str, Any] | None, step: int) -> None:
        """Continue at ``step``, from what ``state`` gave there, if it gave anything.

        Without it the examples before are read again when the next batch is.
        """
        self._begin(self._epoch_of(step))
        if state is None or state["step"] != step or step == self._next:
            return
        values = _on_cpu(state["state"])
        if _stateful(self._dataset):  # it reads its state when its iterator begins
            self._dataset.load_state_dict(values)  # type: ignore[attr-defined]
            self._iterator = self._iterate()
        else:
            self._iterator = self._iterate()
            self._iterator.load_state_dict(values)  # type: ignore[attr-defined]
        self._next, self._loaded = step, {"step": step, "state": _on_cpu(state["state"])}


def _on_cpu(values: Any) -> Any:
    """A copy of a state, its tensors where the dataset had them: an engine moves its own state to
    the device that trains."""
    return tree_map_only(torch.Tensor, lambda x: x.detach().to("cpu", copy=True), values)


def _stateful(holder: Any) -> bool:
    """Whether its position can be saved."""
    return hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict")


def collate(examples: list[Any], name: str) -> Batch:
    """Examples of a dataset as a batch.

    Raises:
        WorkloadError: an example is no tuple, or they differ in shape or length.
    """
    if not isinstance(examples[0], tuple | list):
        raise WorkloadError(
            f"an example of {name} is a {type(examples[0]).__name__}",
            hint="give tuples, such as (x, y), or (x,); or dicts in a Dataset with batch_names",
        )
    try:
        return tuple(default_collate(examples))
    except (RuntimeError, TypeError) as error:
        shapes = {
            tuple(tuple(getattr(part, "shape", ())) for part in example) for example in examples
        }
        if len(shapes) == 1 and len({len(example) for example in examples}) == 1:
            raise
        unequal = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise WorkloadError(
            f"examples of {name} have unequal shapes: {unequal}",
            hint="pad or cut them to equal shapes",
        ) from error


def check_stream(dataset: IterableDataset[Any], workload: Workload) -> None:
    """What a trial rests on: a second copy gives the same examples, also from a saved position.

    Raises:
        WorkloadError: it does not, it is empty, or its state cannot be saved.
    """
    name = f"split 'train' of {workload.name}"
    whole = ExampleStream(dataset, 0, 1, name)
    examples: list[Any] = []
    state = None
    for step in range(min(_CHECKED, length_of(dataset) or _CHECKED)):
        if step == _CHECKED // 2:
            state = whole.state()
        examples += whole.batch(step)
    second = ExampleStream(dataset, 0, 1, name)
    if not _equal(examples, [second.batch(step)[0] for step in range(len(examples))]):
        raise WorkloadError(
            f"{name} gives other examples when it is read again with the same seed",
            hint="draw random numbers from torch's generator, or from a seed that its method "
            "set_seed(seed) receives",
        )
    if state is None:
        return
    try:
        encode(state["state"])
    except UnencodableError as error:
        raise WorkloadError(
            f"{name}: its state_dict() holds what cannot be saved: {error}",
            hint="numbers, text, bytes, tensors, and lists, tuples and dicts of them",
        ) from None
    second.load(state, state["step"])
    after = [second.batch(step)[0] for step in range(state["step"], len(examples))]
    if not _equal(examples[state["step"] :], after):
        raise WorkloadError(
            f"{name} continues with other examples after load_state_dict(state_dict())",
            hint="a state must hold the whole position, or leave both methods out: then the "
            "stream is read again up to the position",
        )


def _equal(first: list[Any], second: list[Any]) -> bool:
    try:
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    except (AssertionError, TypeError, ValueError):
        return False
    return True
