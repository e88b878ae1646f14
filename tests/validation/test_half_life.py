"""The examples at the smallest batch size over those at a base, of curves that are known."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.fit.convex import Points
from analysis.fit.interval import Interval
from analysis.fit.locate import locate
from validation.half_life import penalty, verdict

SIZES = 2.0 ** np.arange(7)


def simulated(rng: np.random.Generator, steep: float) -> Interval:
    """Of the curve whose log examples fall with ``steep`` up to batch size 8, then rise."""
    x = np.log(SIZES)
    examples = steep * np.maximum(np.log(8) - x, 0) + 0.5 * np.maximum(x - np.log(32), 0)
    y = 8 + examples - x + rng.normal(0, 0.05, len(x))
    points = Points(x=x, y=y, variance=np.zeros(len(x)))
    return penalty(locate(points, tolerance=0.2), 16)


@pytest.mark.parametrize("steep", [0.0, 0.25, 0.6])
def test_intervals_hold_the_penalty(steep: float) -> None:
    rng, truth, held = np.random.default_rng(42), 8**steep, 0
    for _ in range(100):
        made = simulated(rng, steep)
        assert made.low is not None
        assert made.high is not None
        held += made.low <= truth * (1 + 1e-9) and truth <= made.high * (1 + 1e-9)
    assert held >= 85


def test_verdicts() -> None:
    high = Interval(value=2.0, low=1.5, high=2.5)
    none = Interval(value=1.0, low=0.9, high=1.0)
    assert verdict(high, none) == "an artefact"
    assert verdict(high, Interval(value=1.9, low=1.4, high=2.4)) == "not shown to be one"
    assert verdict(none, none) == "no penalty to explain"
    assert verdict(Interval(value=1.2, low=0.9, high=1.6), none) == "not known"
    assert verdict(Interval(), none) == verdict(high, Interval()) == "not known"
