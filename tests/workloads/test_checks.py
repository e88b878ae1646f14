"""What a workload returns, checked: each error is one line that names the thing and the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from workloads import WorkloadError, load
from workloads.checks import (
    check_forward,
    check_labels,
    check_metrics,
    check_model,
    check_per_example,
    check_splits,
    check_target,
    column_name,
    length_of,
    target_metric,
)
from workloads.generated.split import GeneratedSplit

X, Y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
WORKLOAD = load("digits-mlp")
AS_REAL = "keep torch.view_as_real(w), and torch.view_as_complex(w) in forward"


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[0], Y[0])])


class SizedStream(Stream):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class Generated(GeneratedSplit):
    def __init__(self, function) -> None:
        self.examples = function  # type: ignore[method-assign]

    def examples(self, indices):
        raise NotImplementedError


class Listed(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int):
        return X[0], Y[0]


@pytest.mark.parametrize("stream", [Stream(), SizedStream(3), Generated(lambda i: (i, i > 1))])
def test_a_stream_to_train_on_passes(stream) -> None:
    splits = check_splits({"train": stream, "validation": (X, Y)}, WORKLOAD)
    assert splits["train"] is stream
    assert length_of(stream) == (3 if isinstance(stream, SizedStream) else None)


def test_an_example_of_a_generated_split() -> None:
    whole = Generated(lambda i: (i, 2 * i))[7]
    assert [int(part) for part in whole] == [7, 14]


def test_good_splits_pass_in_order() -> None:
    listed = Listed(3)
    splits: Any = check_splits(
        {"test": [X], "validation": TensorDataset(X, Y), "train": listed}, WORKLOAD
    )
    assert list(splits) == ["train", "validation", "test"]
    assert splits["train"] is listed
    assert [len(splits[name]) for name in ("validation", "test")] == [2, 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y), "data() of digits-mlp returned a tuple"),
        (
            {"train": {"x": X, "y": Y}, "validation": (X, Y)},
            "split 'train' of digits-mlp is a dict, of 'x', 'y'",
        ),
        (None, "data() of digits-mlp returned a NoneType"),
        ({"validation": (X, Y)}, "data() of digits-mlp has no split 'train'"),
        ({"train": (X, Y)}, "data() of digits-mlp has no split 'validation'"),
        ({"train": (X, Y), "valid": (X, Y)}, "data() of digits-mlp has an unknown split 'valid'"),
        ({"train": (X, Y[:3])}, "split 'train' of digits-mlp: its tensors have 4 and 3 examples"),
        ({"train": (X[:0], Y[:0])}, "split 'train' of digits-mlp is empty"),
        ({"train": ()}, "split 'train' of digits-mlp is empty"),
        ({"train": Listed(0)}, "split 'train' of digits-mlp is empty"),
        ({"train": X}, "split 'train' of digits-mlp is a Tensor"),
        (
            {"train": (X, Y), "validation": Stream()},
            "split 'validation' of digits-mlp is a Stream: evaluation needs a split with an end",
        ),
        ({"train": SizedStream(0)}, "split 'train' of digits-mlp is empty"),
        (
            {"train": Generated(lambda i: torch.zeros(len(i)))},
            "split 'train' of digits-mlp: examples() returned a Tensor",
        ),
        (
            {"train": Generated(lambda i: (i[:2],))},
            "split 'train' of digits-mlp: examples() returned 2 for 3 indices",
        ),
        (
            {"train": Generated(lambda i: (i.double(), torch.rand(len(i))))},
            "split 'train' of digits-mlp: part 1 of an example depends on more than its index",
        ),
        ({"train": (X, np.zeros(4))}, "split 'train' of digits-mlp: its part 1 is a ndarray"),
        ({"train": (torch.tensor(1.0),)}, "split 'train' of digits-mlp: its part 0 is a number"),
    ],
)
def test_bad_splits_are_named(data, message) -> None:
    if isinstance(data, dict) and "validation" not in message and "valid" not in data:
        data = {"validation": (X, Y), **data}
    with pytest.raises(WorkloadError) as caught:
        check_splits(data, WORKLOAD)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.tensor(0.5), 'a mean?): return one value an example, reduction="none"'),
        (0.5, 'a mean?): return one value an example, reduction="none"'),
        (torch.zeros(4, 2), "returned shape (4, 2) for 4 examples"),
        (torch.zeros(3), "returned shape (3,) for 4 examples"),
        (None, "returned a NoneType for 4 examples"),
    ],
)
def test_one_value_an_example(values, message) -> None:
    check_per_example(torch.zeros(4), 4, "loss", WORKLOAD)
    for call in (
        lambda: check_per_example(values, 4, "loss", WORKLOAD),
        lambda: check_metrics({"error": values}, 4, WORKLOAD),
    ):
        with pytest.raises(WorkloadError) as caught:
            call()
        assert message in str(caught.value)
        assert "digits-mlp" in str(caught.value)


def test_sums_with_counts_pass_and_other_tuples_do_not() -> None:
    check_metrics({"perplexity": (torch.tensor(3.0), 7), "error": (1.0, 4)}, 4, WORKLOAD)
    check_metrics({"loss": (torch.zeros(4), torch.ones(4, dtype=torch.int64))}, 4, WORKLOAD)
    wrong: Any
    for wrong in (
        (1.0,),
        (torch.zeros(4), 4),
        (torch.zeros(4), torch.ones(3)),
        (1.0, 2, 3),
        (1.0, "4"),
    ):
        with pytest.raises(WorkloadError, match=r"metric 'error' .* not \(sum, count\)"):
            check_metrics({"error": wrong}, 4, WORKLOAD)
    for wrong in (torch.zeros(4), {}, None):
        with pytest.raises(WorkloadError, match="metrics\\(\\) of digits-mlp returned"):
            check_metrics(wrong, 4, WORKLOAD)
    with pytest.raises(WorkloadError, match="is not a metric's name"):
        check_metrics({"top 1": torch.zeros(4)}, 4, WORKLOAD)


def test_the_targets_metric() -> None:
    assert target_metric(WORKLOAD) == ("validation", "error")


MODEL = torch.nn.Linear(3, 2)


def test_data_that_the_model_cannot_take_are_named() -> None:
    with pytest.raises(WorkloadError, match=r"uint8 \(4, 3\) and int64 \(4,\): Runtime") as raised:
        check_forward(WORKLOAD, MODEL, (X.to(torch.uint8), Y))
    assert "x.float() / 255" in str(raised.value.hint)
    output, metrics = check_forward(WORKLOAD, MODEL, (X, Y))
    assert output.shape == (4, 2)
    assert metrics.keys() == {"error", "cross_entropy"}


@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        (torch.nn.Linear, "returned the class Linear", "return Linear(…)"),
        (None, "returned a NoneType", "return a torch.nn.Module"),
        (torch.nn.Linear(2, 2, dtype=torch.cfloat), "weight of .* is complex", AS_REAL),
    ],
)
def test_a_model_that_is_none_is_named(model: Any, message: str, hint: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        check_model(model, WORKLOAD)
    assert caught.value.hint == hint
    whole = torch.nn.Linear(2, 2)
    assert check_model(whole, WORKLOAD) is whole


def test_a_frame_of_pandas_is_no_split() -> None:
    frame = pd.DataFrame({"x": [0.0] * 4, "y": [0] * 4})
    for value in (frame, frame["x"]):
        with pytest.raises(WorkloadError, match=f"is a pandas {type(value).__name__}") as caught:
            check_splits({"train": value, "validation": (X, Y)}, WORKLOAD)
        assert "torch.as_tensor" in str(caught.value.hint)


def test_an_error_of_a_users_own_model_passes_unchanged() -> None:
    class Broken(torch.nn.Module):
        def forward(self, _: torch.Tensor):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        check_forward(WORKLOAD, Broken(), (X, Y))


@pytest.mark.parametrize(("labels", "wrong"), [([0, 1, 2], "label 2"), ([0, -1], "label -1")])
def test_labels_beyond_the_outputs_are_named(labels: list[int], wrong: str) -> None:
    y = torch.tensor(labels)
    with pytest.raises(WorkloadError, match=f"{wrong}, and its model 2 outputs"):
        check_labels(torch.zeros(1, 2), (X[: len(y)], y), WORKLOAD)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("val_acc", "validation_acc"),
        ("val/loss", "validation_loss"),
        ("eval.loss", "validation_loss"),
        ("train/loss", "train_loss"),
        ("error", "validation_error"),
        ("validation", ""),
        ("/", ""),
    ],
)
def test_a_metric_that_other_programs_name_so(name: str, column: str) -> None:
    assert column_name(name) == column


@pytest.mark.parametrize("target", ["val_acc > 0.9", "val/acc > 0.9"])
def test_the_hint_for_a_target_can_be_followed(target: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        check_target(target, "mine")
    assert "validation_acc" in str(raised.value.hint)
    check_target("validation_acc > 0.9", "mine")
