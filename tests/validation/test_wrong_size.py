"""What a wrong batch size costs: exactly what the law says on a curve of it."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.curves.curve import Curve, Point
from analysis.fit.regimes import regimes
from validation.wrong_size import TIMES, Costs, _costs, _plain, median

GROUP = {"workload": "w", "optimizer": "sgd"}


def costs_of(last: int, critical: float = 64.0, bend: float = 1.0) -> Costs | None:
    """Of a knee without noise, tested from batch size 1 to 2 ** last."""
    sizes = [2**i for i in range(last + 1)]
    steps = [1000.0 * (1 + (critical / size) ** bend) ** (1 / bend) for size in sizes]
    points = tuple(
        Point(batch_size=size, steps=each, trials=1, middles=(each,))
        for size, each in zip(sizes, steps, strict=True)
    )
    curve = Curve(group=GROUP, label="sgd", target=None, points=points, trials=1)
    return _costs("own", GROUP, regimes(curve))


def test_a_curve_of_the_law_costs_what_the_law_says() -> None:
    made = costs_of(14)
    assert made is not None
    assert made.form_free
    at = made.critical
    law = [(1 + 64 / (times * at)) / (1 + 64 / at) for times in TIMES]
    np.testing.assert_allclose(made.steps, law, rtol=0.01)
    assert at == pytest.approx(64, rel=0.03)


def test_a_curve_that_bends_more_sharply_costs_less_near_the_critical_batch_size() -> None:
    made = costs_of(14, bend=2.0)
    assert made is not None
    at = dict(zip(TIMES, made.steps, strict=True))
    assert at[4.0] == pytest.approx(np.sqrt((1 + 1 / 16) / 2), rel=0.02)
    assert at[1 / 4] == pytest.approx(np.sqrt(17 / 2), rel=0.02)


def test_nothing_is_said_beyond_the_tested_batch_sizes() -> None:
    made = costs_of(8, critical=50.0)  # to 256, five times that
    assert made is not None
    assert not made.form_free
    assert np.isnan(made.steps).tolist() == [False] * 5 + [True]
    assert costs_of(8, critical=3000.0) is None


def test_techniques_that_change_training_are_left_out() -> None:
    assert _plain('{"precision": "float32", "noise_scale": 2}')
    assert _plain(None)
    assert not _plain('{"precision": "float32", "ema": 0.9}')


def test_workloads_are_resampled_with_their_curves() -> None:
    """Ten equal curves of one workload are one observation."""

    def costs(workload: str, steps: float) -> Costs:
        return Costs(
            workload=workload, optimizer="sgd", critical=1.0, form_free=True,
            steps=np.full(len(TIMES), steps),
        )  # fmt: skip

    made, _, count = median([*[costs("a", 2.0)] * 10, costs("b", 3.0), costs("c", 3.0)], 0)
    assert count == 12
    assert (made.value, made.low, made.high) == (2.0, 2.0, 3.0)
