"""Targets as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import ResultsError, Target


@given(value=st.floats(allow_nan=False, allow_infinity=False), lower=st.booleans())
def test_a_target_reads_back_to_the_last_bit(value: float, lower: bool) -> None:
    target = Target(metric="validation_error", value=value, lower_is_better=lower)
    assert Target.parse(str(target)) == target


def test_strictly_better_and_never_nan() -> None:
    target = Target.parse("validation_error < 0.04")
    assert str(target) == "validation_error < 0.04"
    assert not target.hit(20 / 500)
    assert target.hit(19 / 500)
    assert not target.hit(float("nan"))
    assert Target.parse("validation_accuracy>0.9").hit(0.91)


@pytest.mark.parametrize("text", ["validation_error <= 0.04", "0.04", "error < x", "a b < 1", ""])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ResultsError, match="is not METRIC < VALUE") as caught:
        Target.parse(text)
    assert caught.value.hint == "for example: validation_error < 0.05"
