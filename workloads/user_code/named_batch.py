"""Batches whose parts have names: a tuple, as the engines hold it, that is read like a dict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from workloads.errors import WorkloadError
from workloads.generated.split import GeneratedSplit
from workloads.text.tokens import TokenStream

PLACES = {"augment": 0, "transform": 0, "forward": 1, "loss": 1, "metrics": 1}
"""Methods of a workload that take a batch, and its place among their arguments."""


class NamedBatch(tuple[Any, ...]):
    """``batch["labels"]``, ``batch[0]`` and ``model(**batch)`` read the same tensors."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, parts: Iterable[Any], names: tuple[str, ...]) -> NamedBatch:
        """``parts`` in the order of ``names``."""
        batch = cls(parts)
        batch.names = names
        return batch

    def keys(self) -> tuple[str, ...]:
        """The names of its parts."""
        return self.names

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(key)
        return super().__getitem__(self.names.index(key))


def by_names(split: Any, workload: Any, place: str) -> Any:
    """A split of dicts as one of tuples in the order of ``batch_names``; any other as it is.

    Raises:
        WorkloadError: it brings a ``collate_fn``, or its examples are no dicts with these parts;
            ``place`` names it.
    """
    names = workload.batch_names
    if hasattr(workload, "collate_fn") or hasattr(split, "collate_fn"):
        what = "is a DataLoader" if isinstance(split, DataLoader) else "has a collate_fn"
        raise WorkloadError(
            f"{place} {what}: batches are drawn and put together here",
            hint="give the dataset, with examples of equal shapes: pad them in its __getitem__",
        )
    if not names or isinstance(
        split, tuple | list | TokenStream | GeneratedSplit | IterableDataset
    ):
        return split
    example = split if isinstance(split, Mapping) else split[0]
    for name in names:
        if not isinstance(example, Mapping) or name not in example:
            what = f"has no {name!r}" if isinstance(example, Mapping) else "is no dict"
            raise WorkloadError(
                f"{place} {what}", hint="batch_names of the workload are the keys of its examples"
            )
    if isinstance(split, Mapping):
        return tuple(split[name] for name in names)
    return NamedExamples(split, names)


class NamedExamples(Dataset[tuple[Any, ...]]):
    """A map-style dataset of dicts as one of tuples in the order of ``names``."""

    def __init__(self, examples: Any, names: tuple[str, ...]) -> None:
        self.examples, self.names = examples, names

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(self.examples[index][name] for name in self.names)


def named(method: Callable[..., Any], place: int, names: tuple[str, ...]) -> Callable[..., Any]:
    """``method`` of a workload, which gets its batch by ``names``; a batch that it returns as a
    dict becomes a tuple."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        given = list(arguments)
        given[place] = NamedBatch.of(given[place], names)
        result = method(self, *given, **options)
        if place == 0 and isinstance(result, Mapping):
            return tuple(result[name] for name in names)
        return tuple(result) if isinstance(result, NamedBatch) else result

    return call
