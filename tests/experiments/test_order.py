"""Batches are drawn without replacement in shuffled epochs, and the order needs no state."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.order import Order


@given(examples=st.integers(1, 200), batch=st.integers(1, 200), seed=st.integers(0, 2**62))
def test_an_epoch_is_a_shuffle_without_its_short_batch(
    examples: int, batch: int, seed: int
) -> None:
    batch = min(batch, examples)
    order = Order(seed, examples, batch)
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
    at_once = Order(seed, examples, batch).batches(start, count)
    singly = [Order(seed, examples, batch).batches(start + i, 1) for i in range(count)]
    assert torch.equal(at_once, torch.cat(singly))


def test_each_seed_and_epoch_has_its_own_order_and_every_example_its_turn() -> None:
    seen = torch.zeros(100)
    for seed in range(50):
        for step in Order(seed, 100, 30).batches(0, 3):
            seen[step] += 1
    assert seen.min() > 30  # expected 45 of 50
    assert seen.sum() == 50 * 90
