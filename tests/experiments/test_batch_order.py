"""Batches are drawn without replacement in shuffled epochs, and the order needs no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.batch_sizes import BatchSizes
from experiments.seeds import derive
from experiments.training import batch_order as module
from experiments.training.batch_order import BatchOrder, BranchedOrder, Shuffle


@given(examples=st.integers(1, 200), batch=st.integers(1, 200), seed=st.integers(0, 2**62))
def test_an_epoch_is_a_shuffle_without_its_short_batch(
    examples: int, batch: int, seed: int
) -> None:
    batch = min(batch, examples)
    order = BatchOrder(seed, examples, batch)
    per_epoch = examples // batch
    epochs = [order.batches(e * per_epoch, per_epoch) for e in range(3)]
    for epoch in epochs:
        assert epoch.shape == (per_epoch, batch)
        assert len(set(epoch.flatten().tolist())) == per_epoch * batch
        assert set(epoch.flatten().tolist()) <= set(range(examples))
    if examples > 20 and batch < examples:
        assert not torch.equal(epochs[0], epochs[1])


@given(
    examples=st.integers(1, 60),
    batch=st.integers(1, 60),
    start=st.integers(0, 300),
    count=st.integers(1, 100),
    seed=st.integers(0, 2**62),
)
def test_any_stretch_is_the_same_read_at_once_or_step_by_step(
    examples: int, batch: int, start: int, count: int, seed: int
) -> None:
    batch = min(batch, examples)
    at_once = BatchOrder(seed, examples, batch).batches(start, count)
    singly = [BatchOrder(seed, examples, batch).batches(start + i, 1) for i in range(count)]
    assert torch.equal(at_once, torch.cat(singly))


def test_each_seed_and_epoch_has_its_own_order_and_every_example_its_turn() -> None:
    seen = torch.zeros(100)
    for seed in range(50):
        for step in BatchOrder(seed, 100, 30).batches(0, 3):
            seen[step] += 1
    assert seen.min() > 30  # expected 45 of 50
    assert seen.sum() == 50 * 90


@pytest.mark.parametrize(("examples", "batch"), [(1000, 300), (2**20, 2**18)])
def test_up_to_a_million_examples_the_order_is_numpys(examples: int, batch: int) -> None:
    """As it always was: recorded trials must see the same batches when they are trained again."""
    draw = np.random.Generator(np.random.SFC64(derive(5, "order", 1)))
    expected = draw.permutation(examples)[: examples // batch * batch].reshape(-1, batch)
    epoch = examples // batch
    assert torch.equal(
        BatchOrder(5, examples, batch).batches(epoch, epoch), torch.from_numpy(expected)
    )


@given(examples=st.integers(1, 200), batch=st.integers(1, 200), seed=st.integers(0, 2**62))
def test_an_order_without_a_table_is_such_a_shuffle_too(
    examples: int, batch: int, seed: int
) -> None:
    shuffle: Any = test_an_epoch_is_a_shuffle_without_its_short_batch
    stretch: Any = test_any_stretch_is_the_same_read_at_once_or_step_by_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_DRAWN_WHOLE", 0)
        shuffle.hypothesis.inner_test(examples, batch, seed)
        stretch.hypothesis.inner_test(examples, batch, seed % 300, 1 + seed % 7, seed)


def test_a_step_of_a_huge_epoch_needs_no_table() -> None:
    order = BatchOrder(3, 10**15, 512)
    batch = order.batches(10**12, 2)
    assert batch.shape == (2, 512)
    assert len(batch.unique()) == 1024
    assert batch.max() < 10**15
    assert batch.double().mean() == pytest.approx(5e14, rel=0.1)
    assert not torch.equal(batch, BatchOrder(4, 10**15, 512).batches(10**12, 2))
    assert not torch.equal(batch, order.batches(10**12 + 10**15 // 512, 2))


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**62))
def test_every_size_is_a_bijection(size: int, seed: int) -> None:
    shuffled = Shuffle(size, seed)[np.arange(size)]
    assert sorted(shuffled.tolist()) == list(range(size))


@given(
    size=st.integers(2, 2**62),
    seed=st.integers(0, 2**62),
    places=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30, unique=True),
)
def test_any_place_is_read_alone_as_among_others(size: int, seed: int, places: list[float]) -> None:
    at = np.array(sorted({int(size * place) for place in places}), dtype=np.int64)
    shuffled = Shuffle(size, seed, "order", 3)[at]
    assert len(set(shuffled.tolist())) == len(at)
    assert (shuffled >= 0).all()
    assert (shuffled < size).all()
    alone = [Shuffle(size, seed, "order", 3)[at[i : i + 1]][0] for i in range(len(at))]
    assert shuffled.tolist() == alone


@pytest.mark.parametrize(
    ("size", "seed", "first"),
    [
        (10, 0, [9, 6, 2, 5]),
        (2**20 + 1, 1, [422179, 294238, 14500, 488472]),
        (10**9, 2, [502584620, 222742919, 185440138, 730427629]),
        (10**15, 3, [597045631712890, 366750297717839, 708238489410552, 275498094434402]),
    ],
)  # fmt: skip
def test_the_same_on_every_machine(size: int, seed: int, first: list[int]) -> None:
    """Recorded trials must see the same batches when they are trained again."""
    assert Shuffle(size, seed, "order", 0)[np.arange(4)].tolist() == first


@pytest.mark.slow
def test_neighbours_part() -> None:
    """In a permutation of a million neither neighbours nor their place can be told from chance."""
    size = 2**20 + 7
    for seed in range(3):
        shuffled = Shuffle(size, seed)[np.arange(size)].astype(np.float64)
        assert len(np.unique(shuffled)) == size
        centred = shuffled - shuffled.mean()
        spread = (centred**2).mean()
        for lag in (1, 2, 64, 1024):
            correlation = (centred[:-lag] * centred[lag:]).mean() / spread
            assert abs(correlation) * np.sqrt(size) < 4
        place = np.arange(size) - (size - 1) / 2
        assert abs((centred * place).mean() / spread) * np.sqrt(size) < 4
        boxes = (shuffled * 64 // size).astype(int)
        pairs = np.bincount(boxes[:-1] * 64 + boxes[1:], minlength=64**2)
        expected = (size - 1) / 64**2
        chi_square = float(((pairs - expected) ** 2 / expected).sum())
        assert abs(chi_square - 64**2) < 5 * np.sqrt(2 * 64**2)


@pytest.mark.parametrize("examples", [50, 2**20 + 7])
@pytest.mark.parametrize("times", [1, 3])
def test_a_branch_sees_what_is_left_of_the_epoch_in_an_order_of_its_own(
    examples: int, times: int
) -> None:
    size = 4 if examples == 50 else 2**17
    step = 5 if examples == 50 else 2  # more than one of the larger size is left
    sizes = BatchSizes(batch_size=size, starts=(0, step), sizes=(size, times * size))
    origin = BatchOrder(1, examples, sizes)
    branches = [
        BranchedOrder(seed, examples, sizes, before=1, step=step, repeat=True) for seed in (2, 3)
    ]
    left = (examples - step * size) // (times * size)
    before = origin.batches(0, step).flatten()
    rests = [branch.batches(step, left).flatten() for branch in branches]
    assert all(torch.equal(branch.batches(0, step).flatten(), before) for branch in branches)
    for rest in rests:
        assert len({*rest.tolist()} | {*before.tolist()}) == len(rest) + len(before)
    later = [branch.batches(step + left, 2) for branch in branches]
    for one, other in (rests, later):
        assert not torch.equal(one, other)
    assert torch.equal(later[0], BatchOrder(2, examples, sizes).batches(step + left, 2))
