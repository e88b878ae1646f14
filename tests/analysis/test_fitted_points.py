"""What is known of a point's noise: luck by order statistics and repeats, and the bracket."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, Point, curves, regimes
from analysis.curves.estimators import BEST_OF_10, MEDIAN
from analysis.fit.fitted_points import RATIO, RATIO_OF_MORE, STEEPEST, fitted_points
from tests.analysis.conftest import plain_curve, search

SIZES = [2**i for i in range(10)]


def searched(fourths: list[float], dimensions: int | None = 2, **fields: object) -> Curve:
    """A best of N at each of ``SIZES``, of 100 steps, with X(4) so many times that."""
    points = tuple(
        Point(
            batch_size=size, steps=100.0, minimum=100.0, fourth=100.0 * ratio, hits=4, trials=64,
            middles=(100.0,),
        )
        for size, ratio in zip(SIZES, fourths, strict=True)
    )  # fmt: skip
    points = tuple(replace(point, **fields) for point in points)  # type: ignore[arg-type]
    return Curve(
        group={"optimizer": "sgd"}, label="sgd", target=None, points=points, trials=64,
        dimensions=dimensions,
    )  # fmt: skip


def order_statistics(dimensions: int, searches: int = 4000) -> np.ndarray:
    """Log steps of the four best of 64 random points each, (searches, 4), in a bowl whose log
    steps rise with the square of the distance from the optimum, in the middle of a unit cube."""
    rng = np.random.default_rng(dimensions)
    away = rng.uniform(-0.5, 0.5, (searches, 64, dimensions))
    return np.sort(np.square(away).sum(2), axis=1)[:, :4]


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_the_luck_of_a_search_follows_from_its_own_order_statistics(dimensions: int) -> None:
    """The variance of log X(1), by E log² X(4)/X(1): never too small by more than a fifth."""
    logs = order_statistics(dimensions)
    simulated = logs[:, 0].var()
    ratio = RATIO.get(dimensions, RATIO_OF_MORE)
    claimed = np.square(logs[:, 3] - logs[:, 0]).mean() / ratio
    assert 0.8 < claimed / simulated < (4 if dimensions == 1 else 1.3)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 7, None])
def test_points_have_that_variance(dimensions: int | None) -> None:
    ratio = {None: RATIO[2], 4: RATIO_OF_MORE, 7: RATIO_OF_MORE}.get(dimensions)
    ratio = ratio or RATIO[dimensions or 2]
    found = fitted_points(searched([1.5] * 10, dimensions))
    assert found.variance == pytest.approx(np.log(1.5) ** 2 / ratio)
    assert found.y == pytest.approx(np.log(100))
    # Of unequal ones that show no trend the mean of the squares is every point's.
    uneven = [1.2, 1.8] * 5
    found = fitted_points(searched(uneven, dimensions))
    assert found.variance.mean() == pytest.approx(np.mean(np.log(uneven) ** 2) / ratio, rel=0.1)


def test_points_of_which_nothing_is_known_have_none() -> None:
    assert fitted_points(plain_curve(SIZES, SIZES)).variance.tolist() == [0.0] * 10
    for unknown in ({"fourth": None}, {"exact": False}, {"estimator": MEDIAN}):
        assert fitted_points(searched([1.5] * 10, **unknown)).variance.tolist() == [0.0] * 10
    known = fitted_points(searched([1.5] * 10, estimator=BEST_OF_10)).variance
    assert known == pytest.approx(np.log(1.5) ** 2 / RATIO[2])


def test_order_statistics_of_trials_that_were_not_drawn_alike_say_nothing() -> None:
    assert not fitted_points(searched([1.5] * 10, exchangeable=False)).variance.any()


def test_points_without_a_fourth_have_the_variance_of_the_others() -> None:
    curve = searched([1.5] * 10)
    points = (replace(curve.points[0], fourth=None, hits=2), *curve.points[1:])
    found = fitted_points(replace(curve, points=points))
    assert found.variance == pytest.approx(np.log(1.5) ** 2 / RATIO[2])


def test_the_bracket_adds_the_variance_of_where_in_it_the_target_was_passed() -> None:
    point = {"minimum": 100.0, "fourth": None, "last_miss": 79.0, "middles": (90.0,)}
    found = fitted_points(searched([1.5] * 10, **point))  # type: ignore[arg-type]
    passed = np.random.default_rng(0).uniform(79, 100, 100_000) / 90
    assert found.variance == pytest.approx(np.var(passed), rel=0.03)
    point = {**point, "fourth": 150.0}
    both = fitted_points(searched([1.5] * 10, **point))  # type: ignore[arg-type]
    assert both.variance - found.variance == pytest.approx(np.log(1.5) ** 2 / RATIO[2])


@pytest.mark.parametrize(("runs", "brackets"), [((100.0,), 1), ((100.0,) * 3, 1), ((99, 101), 2)])
def test_that_of_runs_does_too(runs: tuple[float, ...], brackets: int) -> None:
    """Runs that agreed were known to a step, however far their evaluations lay apart."""
    point = {"minimum": None, "last_miss": 79.0, "middles": (90.0,) * len(runs)}
    found = fitted_points(searched([1.5] * 10, runs=runs, **point))  # type: ignore[arg-type]
    assert found.variance == pytest.approx((21 / 90) ** 2 / 12 / brackets)


def repeated(deviation: np.ndarray, runs: int, seed: int) -> Curve:
    """Runs at each of ``SIZES`` that scatter by so much."""
    rng = np.random.default_rng(seed)
    steps = np.exp(5 + np.repeat(deviation, runs) * rng.normal(size=runs * len(SIZES)))
    return plain_curve(np.repeat(SIZES, runs), steps)


def test_a_point_of_repeated_runs_is_their_mean_and_scatters_less() -> None:
    curve = repeated(np.full(10, 0.1), 5, 0)
    found = fitted_points(curve)
    within = [np.log(point.runs).var(ddof=1) for point in curve.points]
    assert found.y == pytest.approx([np.log(point.runs).mean() for point in curve.points])
    assert found.variance.mean() == pytest.approx(np.mean(within) / 5, rel=0.1)
    # Twenty runs at one batch size say four times as much there.
    more = replace(
        curve.points[4], runs=curve.points[4].runs * 4, middles=curve.points[4].middles * 4
    )
    points = (*curve.points[:4], more, *curve.points[5:])
    weighed = fitted_points(replace(curve, points=points)).variance
    assert weighed[4] / weighed[[3, 5]].mean() == pytest.approx(1 / 4, rel=0.1)


def test_noise_that_falls_along_the_curve_is_found() -> None:
    """From 20 % to 3 % over nine doublings, three runs each; the deviation of each point alone is
    off by a factor of two."""
    true = np.geomspace(0.2, 0.03, 10)
    variances = [fitted_points(repeated(true, 3, seed)).variance for seed in range(40)]
    off = np.log(np.sqrt(np.multiply(variances, 3)) / true)
    assert abs(np.median(off[:, 0])) < np.log(1.3)
    assert abs(np.median(off[:, -1])) < np.log(1.6)
    assert np.mean(np.abs(off[:, [0, -1]]) < np.log(2)) > 0.75
    slopes = off[:, -1] - off[:, 0] + np.log(true[-1] / true[0])
    assert np.median(slopes) / np.log(true[-1] / true[0]) > 0.7


def test_equal_noise_is_taken_as_equal() -> None:
    """The trend is shrunk by its own error: in most curves it is none."""
    variances = [fitted_points(repeated(np.full(10, 0.1), 3, seed)).variance for seed in range(40)]
    ratios = np.sqrt(np.max(variances, axis=1) / np.min(variances, axis=1))
    assert np.median(ratios) < 1.3
    assert np.mean(ratios < 1.001) > 0.4


def test_no_trend_is_steeper_than_can_be() -> None:
    variance = fitted_points(repeated(np.geomspace(10, 1e-6, 10), 8, 0)).variance
    slope = np.log(variance[-1] / variance[0]) / 2 / np.log(SIZES[-1])
    assert slope == pytest.approx(-STEEPEST)


def test_searches_know_their_luck_and_it_is_the_floor_of_the_noise() -> None:
    """The interval of a smooth curve is not narrower than the scatter of its searches."""
    lucky, unlucky = (regimes(searched([ratio] * 10)).noise for ratio in (1.01, 3.0))
    assert unlucky == pytest.approx(np.log(3) / np.sqrt(RATIO[2]))
    assert lucky < unlucky


def test_trials_of_a_search_give_such_points() -> None:
    trials: pd.DataFrame = search(noise=0.02)
    (curve,) = curves(trials)
    found = fitted_points(curve)
    assert (found.variance > 0).all()
    assert [round(float(np.exp(x))) for x in found.x] == [*curve.batch_sizes]
