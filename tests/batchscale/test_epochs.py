"""An epoch is one thing: what an experiment's budget counts and what results are asked under."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.curves.limits import UNITS, Limit
from experiments.amounts import Amount


def under(text: str, batch_size: int, train: int) -> int:
    steps = Limit.parse(text).steps(np.array([float(batch_size)]), np.array([float(train)]))
    return int(steps[0])


@given(
    train=st.integers(1, 10**9),
    share=st.floats(0, 1),
    amount=st.decimals("0.001", 10**6, places=3),
    unit=st.sampled_from(UNITS),
)
@example(train=1297, share=0.789, amount=12, unit="epochs")
@example(train=1000, share=0.01, amount=0.7, unit="epochs")
def test_the_same_text_is_the_same_step(
    train: int, share: float, amount: object, unit: str
) -> None:
    batch_size = max(1, min(train, round(share * train)))
    text = f"{amount} {unit}"
    assert under(text, batch_size, train) == Amount.parse(text).in_steps(batch_size, train, 1)
