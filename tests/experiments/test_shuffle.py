"""A shuffle without a table: a bijection of every size, read anywhere, the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.batch_order import Shuffle


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
