"""Ratios pooled over workloads: known means and scatters, and what is not pooled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from analysis.figure_data import FigureData
from analysis.fit.interval import Interval
from analysis.fit.random_effects import solve
from analysis.techniques.pooled import Pooled, _mean, pooled
from analysis.techniques.table import Ratio, Row, table
from results.errors import ResultsError
from tests.analysis.techniques_compared import technique_curve

HALF = float(norm.ppf(0.95))


def mean_of(logs: np.ndarray, errors: np.ndarray, p_unknown: int = 0) -> Pooled:
    """Log ratios with errors, of one quantity in as many workloads; the first ones open."""
    curve = technique_curve(("adam", {}))
    rows = {}
    for i, (log, error) in enumerate(zip(logs, errors, strict=True)):
        ends = (log, log - HALF * error, np.inf if i < p_unknown else log + HALF * error)
        ratio = Ratio(interval=Interval.of_logs(*ends), p=None, corrected=None)
        rows[f"w{i}"] = Row(
            name="adam", curve=curve, baseline="sgd", ratios={"min_steps": ratio}, level=0.9,
            notes=(),
        )  # fmt: skip
    return _mean(rows, "min_steps", 0.9)


@pytest.mark.parametrize(
    ("workloads", "scatter", "law"),
    [(8, 0.0, "normal"), (8, 0.4, "normal"), (4, 0.4, "normal"), (8, 0.4, "lognormal")],
)
def test_intervals_of_means_and_predictions_cover(workloads: int, scatter: float, law: str) -> None:
    """Of 400 sets of ratios with a mean of 2, whose workloads scatter normally, or by another
    law. With no scatter the intervals are too wide, as is known of this method; where the law is
    skewed that of the mean is too narrow."""
    rng = np.random.default_rng(4)
    errors = np.geomspace(0.08, 0.3, workloads)
    held = predicted = 0
    for _ in range(400):
        off = rng.normal(0, 1, workloads + 1)
        if law == "lognormal":
            off = (np.exp(off) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
        true = np.log(2) + scatter * off
        made = mean_of(true[:-1] + rng.normal(0, errors), errors)
        held += made.ratio.interval.holds(2.0)
        predicted += made.prediction.holds(float(np.exp(true[-1])))
    assert (0.8 if law == "lognormal" else 0.86) <= held / 400 <= (0.99 if scatter == 0 else 0.95)
    assert 0.86 <= predicted / 400 <= (1 if scatter == 0 else 0.95)


def test_the_mean_of_equal_errors_is_the_plain_one() -> None:
    logs, errors = np.array([0.1, 0.9, 0.5, 0.3]), np.full(4, 0.01)
    made = solve(np.ones((4, 1)), logs, errors)
    assert made.values[0] == pytest.approx(logs.mean())
    # The errors are so small that the scatter is that of the logs, and the interval Student's.
    assert made.scatter == pytest.approx(np.sqrt(logs.var(ddof=1) - 1e-4))
    assert made.errors[0] == pytest.approx(logs.std(ddof=1) / 2)
    assert mean_of(logs, errors).ratio.interval.value == pytest.approx(np.exp(logs.mean()))


def test_p_is_where_the_interval_reaches_1() -> None:
    logs, errors = np.array([0.1, 0.9, 0.5, 0.3]), np.full(4, 0.1)
    p = mean_of(logs, errors).ratio.p
    assert p is not None
    made = solve(np.ones((4, 1)), logs, errors, level=1 - p)
    assert made.by[0] == pytest.approx(made.values[0])


def test_open_ratios_are_left_out_and_named() -> None:
    logs, errors = np.array([0.1, 0.9, 0.5, 0.3]), np.full(4, 0.1)
    made = mean_of(logs, errors, p_unknown=1)
    assert (made.workloads, made.left_out) == (("w1", "w2", "w3"), ("w0",))
    few = mean_of(logs, errors, p_unknown=2)
    assert few.ratio.interval == few.prediction == Interval()
    assert (few.ratio.p, few.scatter, few.left_out) == (None, None, ("w0", "w1"))


def test_curves_of_several_workloads_are_pooled_by_technique() -> None:
    curves = [
        technique_curve((optimizer, {}), critical=critical, seed=seed, workload=workload)
        for seed, (optimizer, critical, workload) in enumerate(
            (optimizer, critical * factor, workload)
            for workload, factor in (("a", 1.0), ("b", 2.0), ("c", 0.5))
            for optimizer, critical in (("sgd", 40.0), ("adam", 120.0))
        )
    ]
    made = pooled(table(FigureData.of(curves), correction="dunnett"))
    assert made.correction.name == "holm"
    assert made.compared == 4
    (row,) = made.to_dicts()
    critical = row["ratios"]["critical_batch_size"]
    assert row["name"] == "adam"
    assert critical["workloads"] == ["a", "b", "c"]
    assert critical["low"] < 3 < critical["high"]
    assert critical["prediction"]["low"] < critical["low"]
    with pytest.raises(ResultsError, match="ratios in 3 workloads"):
        pooled(table(FigureData.of(curves[:4])))


def test_two_ratios_of_one_workload_are_no_two_workloads() -> None:
    curves = [technique_curve((o, {}), seed=i) for i, o in enumerate(("sgd", "adam", "lion"))]
    rows = table(FigureData.of(curves))
    twice = [row if row.name == "adam" else None for row in rows.rows]
    doubled = [row for row in twice if row is not None] * 2
    with pytest.raises(ResultsError, match="several ratios of adam"):
        pooled(type(rows)(
            rows=tuple(doubled), correction=rows.correction, compared=8, level=rows.level
        ))  # fmt: skip
