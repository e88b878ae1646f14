"""Random numbers by counting: normal ones are those of torch's arithmetic, masks of dropout as
written out, at their rate, and independent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from experiments import counter_random
from experiments.counter_random import hashes, kept, normal
from experiments.engines.randomness import key_of
from experiments.seeds import derive
from workloads.generated.counters import PLACE, mixed

LOWER = 2**24 - 1


def by_torch(key: Tensor, first: int, like: Tensor) -> Tensor:
    """The slow twin: in one piece, by torch alone."""
    z = hashes(key, first, like.shape)
    angle = (z & LOWER).to(like.dtype).mul_(2 * math.pi * 2.0**-24).cos_()
    radius = ((z >> 40) & LOWER).to(like.dtype).add_(0.5).mul_(2.0**-24).log_().mul_(-2).sqrt_()
    return radius.mul_(angle)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (4_810,), (2**15 + 7,)])
def test_normal_numbers_are_the_same_to_the_last_bit(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    keys = torch.randint(-(2**62), 2**62, (9,), generator=torch.Generator().manual_seed(0))
    like = torch.empty(shape, dtype=dtype)
    expected = torch.stack([by_torch(key, 3, like) for key in keys])
    assert torch.stack([normal(key, 3, like) for key in keys]).equal(expected)
    of_all = vmap(lambda key: normal(key, 3, like))(keys)
    assert of_all.equal(expected)
    assert of_all.dtype == dtype


PLACES = torch.arange(2**12).view(64, 64) * PLACE
"""64 examples of 64 numbers."""


def _written_out(places: Tensor, keys: Tensor, threshold: int) -> Tensor:
    """From the whole hashes, at once."""
    drawn = mixed(places + keys.view(*keys.shape, *[1] * places.dim()))
    return ((drawn >> 40) & LOWER) >= threshold


def _keys(count: int, step: int = 0) -> Tensor:
    return torch.tensor([key_of(seed, step) for seed in range(count)])


@pytest.mark.parametrize(
    ("models", "shape"), [((), (5, 3)), ((3,), (7, 11)), ((2, 3), (4,)), ((2,), (0, 4)), ((3,), ())]
)
@pytest.mark.parametrize("block", [4, 30, 2**15])
def test_blocks_of_any_size_make_the_mask_that_is_written_out(
    models: tuple[int, ...], shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_random, "_BLOCK", block)
    places = torch.arange(math.prod(shape)).view(shape) * PLACE
    keys = _keys(math.prod(models)).view(models)
    for threshold in (0, 1, 2**23, 2**24 - 1):
        mask = kept(places, keys, threshold, 1.0, torch.float32)
        assert mask.shape == (*models, *shape)
        assert torch.equal(mask.bool(), _written_out(places, keys, threshold))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_scale_is_exact_in_each_type(dtype: torch.dtype) -> None:
    mask = kept(PLACES, _keys(1)[0], 2**22, 4 / 3, dtype)
    assert mask.dtype == dtype
    assert torch.equal(mask.unique(), torch.tensor([0, 4 / 3], dtype=torch.float64).to(dtype))


def test_a_stack_of_models_has_the_mask_of_each() -> None:
    keys = _keys(4)
    each = torch.stack([kept(PLACES, key, 2**22, 2.0, torch.float32) for key in keys])
    stacked = vmap(lambda key: kept(PLACES, key, 2**22, 2.0, torch.float32))(keys)
    assert torch.equal(stacked, each)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_masks_have_their_rate_and_know_nothing_of_each_other(rate: float) -> None:
    """Of 64 models: between models, steps, examples, and the numbers of an example."""
    threshold = round(rate * 2**24)
    assert abs(threshold / 2**24 - rate) <= 2**-16
    now, then = (
        kept(PLACES, _keys(64, step), threshold, 1.0, torch.float64) == 0 for step in (0, 1)
    )
    share = now.double().mean()
    deviation = math.sqrt(rate * (1 - rate) / now.numel())
    assert abs(float(share) - rate) < 4 * deviation
    pairs = {
        "steps": (now, then),
        "models": (now[1:], now[:-1]),
        "examples": (now[:, 1:], now[:, :-1]),
        "numbers": (now[:, :, 1:], now[:, :, :-1]),
    }
    for name, (a, b) in pairs.items():
        together = float((a & b).double().mean())
        error = rate * math.sqrt((1 - rate**2) / a.numel()) + 2 * rate * deviation
        assert abs(together - rate**2) < 5 * error, name
    # No model, example or number drops more than its share: χ² of each, 5 standard deviations.
    for dims in ((1, 2), (0, 2), (0, 1)):
        counts = now.double().sum(dims)
        size = now.numel() / 64
        chi = float(((counts - size * rate) ** 2 / (size * rate * (1 - rate))).sum())
        assert abs(chi - 64) < 5 * math.sqrt(2 * 64)


PARTS = st.lists(st.one_of(st.integers(), st.text()), min_size=1, max_size=4)


def test_seeds_are_fixed_for_good():
    assert derive(0, "study", "trial") == derive(0, "study", "trial")
    assert derive(1, "order", 7) == 7291740151177848281
    assert derive("ä", -1) == 326524803647726286


@given(PARTS)
def test_a_seed_has_63_bits(parts):
    assert 0 <= derive(*parts) < 2**63


@given(PARTS, PARTS)
def test_different_parts_give_different_seeds(a, b):
    assert (derive(*a) == derive(*b)) == (a == b)


def test_words_do_not_run_together():
    assert derive("a", "b") != derive("ab")
    assert derive(1) != derive("1")
    assert derive("init") != derive("order")


def test_integers_of_numpy_are_integers():
    three: Any = np.int64(3)
    assert derive(three, "order") == derive(3, "order")


@pytest.mark.parametrize("part", [1.5, None, (1, 2)])
def test_other_parts_are_refused(part):
    with pytest.raises(TypeError):
        derive(part)
