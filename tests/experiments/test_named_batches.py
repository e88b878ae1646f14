"""Batches that are read like dicts: the same numbers as with tuples, in both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.training.streams import collate
from workloads import WorkloadError, load
from workloads.checks import check_splits
from workloads.user_code.named_batch import NamedBatch

PARTS = '''
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from batchscale import Workload


def parts(split):
    generator = torch.Generator().manual_seed(len(split))
    x = torch.randn(200, 5, generator=generator)
    return {"labels": x.sum(1).gt(0).long(), "input_ids": x}


class Examples(Dataset):
    def __init__(self, split):
        self.parts = parts(split)

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return {name: values[index] for name, values in self.parts.items()}


class Model(nn.Module):
    """As those of transformers: it takes the parts of a batch by their names."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, input_ids, labels=None):
        return self.layer(input_ids)


class Tuples(Workload):
    target = "validation_error < 0.01"

    def data(self):
        of = {split: parts(split) for split in ("train", "validation")}
        return {split: (each["input_ids"], each["labels"]) for split, each in of.items()}

    def model(self):
        return Model()

    def loss(self, output, batch):
        return F.cross_entropy(output, batch[1], reduction="none")

    def metrics(self, output, batch):
        return {"error": (output.argmax(-1) != batch[1]).float()}


class Listed(Tuples):
    def data(self):
        return {split: list(each) for split, each in super().data().items()}


class Named(Tuples):
    batch_names = ("input_ids", "labels")

    def data(self):
        return {split: parts(split) for split in ("train", "validation")}

    def transform(self, batch, *, training):
        return {"input_ids": batch["input_ids"] * 1.0, "labels": batch["labels"]}

    def forward(self, model, batch):
        return model(**batch)

    def loss(self, output, batch):
        return F.cross_entropy(output, batch["labels"], reduction="none")

    def metrics(self, output, batch):
        return {"error": (output.argmax(-1) != batch["labels"]).float()}


class Streamed(Named):
    def data(self):
        return {split: Examples(split) for split in ("train", "validation")}


class Wrong(Named):
    batch_names = ("input_ids", "label")


class WrongStreamed(Streamed):
    batch_names = ("input_ids", "label")


class Loaded(Tuples):
    def data(self):
        return {split: DataLoader(Examples(split)) for split in ("train", "validation")}


class Collated(Tuples):
    def collate_fn(self, examples):
        return examples


class Plain(Tuples):
    def data(self):
        return {split: parts(split) for split in ("train", "validation")}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(PARTS)
    return tmp_path


@pytest.mark.parametrize("name", ["Named", "Streamed"])
def test_names_change_no_number(folder: Path, name: str) -> None:
    plain, by_name = (load(f"own.py:{each}", base=folder) for each in ("Tuples", name))
    model, at = plain.model(), torch.arange(9)
    batches = []
    for workload in (plain, by_name):
        split = check_splits(workload.data(), workload)["train"]
        parts: Any = (
            split if isinstance(split, tuple) else collate([split[i] for i in range(200)], "")
        )
        batches.append(workload.transform(tuple(part[at] for part in parts), training=True))
    first, second = (w.forward(model, b) for w, b in zip((plain, by_name), batches, strict=True))
    assert torch.equal(first, second)
    assert torch.equal(plain.loss(first, batches[0]), by_name.loss(second, batches[1]))
    assert type(batches[1]) is tuple


def test_a_named_batch_is_a_tuple_and_a_mapping() -> None:
    batch: Any = NamedBatch.of((1, 2), ("x", "y"))
    assert batch == (1, 2)
    assert (batch[0], batch["y"], batch[:1]) == (1, 2, (1,))
    assert dict(**batch) == {"x": 1, "y": 2}
    with pytest.raises(KeyError, match="z"):
        batch.__getitem__("z")


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("Wrong", "has no 'label'", "batch_names of the workload"),
        ("WrongStreamed", "has no 'label'", "batch_names of the workload"),
        ("Loaded", "is a DataLoader: batches are drawn", "give the dataset"),
        ("Collated", "has a collate_fn: batches are drawn", "examples of equal shapes"),
        ("Plain", "is a dict, of 'labels', 'input_ids'", "batch_names = ('x', 'y')"),
    ],
)
def test_what_is_refused(folder: Path, name: str, says: str, hint: str) -> None:
    workload = load(f"own.py:{name}", base=folder)
    with pytest.raises(WorkloadError) as caught:
        check_splits(workload.data(), workload)
    assert says in str(caught.value)
    assert hint in str(caught.value.hint)
