"""Token streams: which windows a split has, and what is no stream."""

from __future__ import annotations

import pytest
import torch

from experiments.training.batch_order import BatchOrder
from experiments.training.splits import Split
from workloads import TokenStream, WorkloadError, load
from workloads.checks import check_splits

CPU = torch.device("cpu")
TYPES = [torch.uint8, torch.uint16, torch.int32, torch.int64]


def stream(length: int = 43, context: int = 5, dtype: torch.dtype = torch.uint8) -> TokenStream:
    return TokenStream((torch.arange(length) * 7 % 251).to(dtype), context)


@pytest.mark.parametrize("dtype", TYPES)
def test_windows_are_consecutive_and_targets_are_shifted_by_a_token(dtype) -> None:
    split = stream(dtype=dtype)
    inputs, targets = split.windows(torch.arange(len(split)))
    assert len(split) == 8
    assert inputs.dtype == targets.dtype == dtype
    text = split.tokens.long()
    assert inputs.long().flatten().tolist() == text[:40].tolist()
    assert targets.long().flatten().tolist() == text[1:41].tolist()
    assert torch.equal(torch.stack(split[3]), torch.stack([inputs[3], targets[3]]))
    drawn = split.windows(torch.tensor([6, 2, 6]))[0].long()
    assert drawn.tolist() == [text[5 * i : 5 * i + 5].tolist() for i in (6, 2, 6)]


def test_large_ids_survive_16_bits() -> None:
    tokens = torch.tensor([0, 65_535, 40_000, 32_768, 1], dtype=torch.int64).to(torch.uint16)
    inputs, targets = TokenStream(tokens, 2).windows(torch.tensor([1, 0]))
    assert inputs.long().tolist() == [[40_000, 32_768], [0, 65_535]]
    assert targets.long().tolist() == [[32_768, 1], [65_535, 40_000]]


@pytest.mark.parametrize(("length", "windows"), [(6, 1), (10, 1), (11, 2), (5, 0), (0, 0)])
def test_a_window_needs_the_token_that_follows_it(length, windows) -> None:
    assert len(stream(length)) == windows


@pytest.mark.parametrize("index", [-1, 8])
def test_a_window_outside_the_text_is_an_index_error(index) -> None:
    with pytest.raises(IndexError, match="there are 8"):
        stream()[index]


def test_an_epoch_draws_every_window_once_in_batches_of_whole_windows() -> None:
    """What an engine trains on, fetched step by step or many small batches at once."""
    workload = load("lm-transformer", {"context": 5})
    split = Split(stream(503), workload, CPU, torch.float32)
    assert (len(split), split.resident, split.random, split.nbytes) == (100, True, False, 503)
    order = BatchOrder(3, len(split), 7)
    at_once = split.fetch(order.batches(0, 14).reshape(-1), training=True)
    for step in range(14):
        inputs, targets = split.fetch(order.batches(step, 1)[0], training=True)
        assert inputs.shape == targets.shape == (7, 5)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs, at_once[0].view(14, 7, 5)[step])
        assert torch.equal(targets, at_once[1].view(14, 7, 5)[step])
    drawn = torch.cat([order.batches(step, 1)[0] for step in range(14)])
    assert len(set(drawn.tolist())) == 98


def splits(train: object) -> dict[str, object]:
    return {"train": train, "validation": stream()}


def test_a_stream_is_a_split() -> None:
    checked = check_splits(splits(stream()), load("lm-transformer"))
    assert isinstance(checked["train"], TokenStream)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (stream(5), r"split 'train' of lm-transformer has 5 tokens, too few for a context of 5"),
        (stream(43, 0), r"too few for a context of 0"),
        (TokenStream(torch.zeros(9), 2), r"its tokens are torch.float32, 1-D"),
        (TokenStream(torch.zeros(9, 2).byte(), 2), r"its tokens are torch.uint8, 2-D"),
        (TokenStream([1, 2, 3], 2), r"its tokens are a list"),  # type: ignore[arg-type]
        (torch.zeros(9).byte(), r"split 'train' of lm-transformer is a Tensor"),
    ],
)
def test_what_is_no_stream_is_refused(train, message) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        check_splits(splits(train), load("lm-transformer"))
    assert caught.value.hint
