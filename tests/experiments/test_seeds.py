"""Seeds: 63 bits, the same everywhere, different wherever a part differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.seeds import derive

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
