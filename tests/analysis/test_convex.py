"""The convex fit against another optimizer, on curves that it has, and against its prototype."""

from __future__ import annotations

import itertools
import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from analysis.fit.convex import BETWEEN, PRIOR_NOISE, Family, Fit, Points, fits
from analysis.fit.knee import log_steps, theta
from analysis.fit.locate import locate
from tests.marks import quick

X = np.log(2.0) * np.arange(12.0)
REFERENCE = Path(os.environ.get("BATCHSCALE_REFERENCE", "no reference")) / "convex.py"
TEXT = {"adamw": [486, 326, 216, 161, 101, 86, 71, 61], "muon": [262, 140, 80, 43, 32, 23, 21, 20]}
"""Steps to target on techniques-text, from batch size 1 on."""


def points(y: Any, x: np.ndarray = X, variance: Any = 0.0) -> Points:
    y = np.asarray(y, dtype=float)
    return Points(x=x[: len(y)], y=y, variance=np.broadcast_to(variance, y.shape).astype(float))


class Twin:
    """Curves by their value at the first batch size and the slope of each piece, which rise from
    ``low`` to ``high``."""

    def __init__(self, data: Points, low: float, high: float) -> None:
        self.data = data
        gaps = [np.linspace(a, b, BETWEEN + 1)[:-1] for a, b in itertools.pairwise(data.x)]
        self.knots = np.concatenate([*gaps, data.x[-1:]])
        pieces = len(self.knots) - 1
        ordered = np.diff(np.eye(pieces), axis=0)
        self.slopes = LinearConstraint(np.c_[np.zeros(pieces - 1), ordered], 0.0, np.inf)
        self.bounds = [(None, None), *[(low, high)] * pieces]
        self.start = np.r_[data.y[0], np.linspace(low, high, pieces)]
        self.design = np.stack([self.row(x) for x in data.x])

    def row(self, x: float) -> np.ndarray:
        """log S at x is this times the parameters."""
        ends = np.clip(x, self.knots[:-1], self.knots[1:])
        return np.r_[1.0, ends - self.knots[:-1]]

    def least(self, row: np.ndarray | None = None, value: float = 0.0) -> float:
        """The least sum of squares, of curves on which ``row`` has that value if it is given."""
        held = [] if row is None else [LinearConstraint(row, value, value)]

        def squares(at: np.ndarray) -> tuple[float, np.ndarray]:
            off = self.design @ at - self.data.y
            weighted = self.data.weights * off
            return float(weighted @ off), 2 * self.design.T @ weighted

        found = minimize(
            squares, self.start, jac=True, method="SLSQP", bounds=self.bounds,
            constraints=[self.slopes, *held], options={"maxiter": 2000, "ftol": 1e-14},
        )  # fmt: skip
        assert found.success, found.message
        return float(found.fun)


def drawn(seed: int) -> Points:
    """A knee with noise of 10 %, at four to nine batch sizes with unequal gaps and weights."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.3, 1.5, int(rng.integers(4, 10))))
    critical = float(np.exp(rng.uniform(x[0], x[-1])))
    y = log_steps(x, theta(100, critical, np.exp(rng.uniform(-0.5, 1)), rng.uniform(0.6, 1.3)))
    known = rng.uniform(0.5, 2, len(x)) ** 2 * 0.01 if seed % 2 else np.zeros(len(x))
    return Points(x=x, y=y + rng.normal(0, 0.1, len(x)), variance=known)


@pytest.mark.parametrize("seed", quick(range(10), 2))
@pytest.mark.parametrize(("low", "high"), quick([(-1.0, 0.0), (-2.0, 0.0), (-1.0, 1.0)], 1))
def test_the_sum_of_squares_is_that_of_another_optimizer(
    seed: int, low: float, high: float
) -> None:
    """The best, and those of curves on which a quantity is held: S at the last batch size, E at the
    first, and their ratio."""
    data = drawn(seed)
    twin, fit = Twin(data, low, high), Fit.of(data, low, high)
    assert fit.sse == pytest.approx(twin.least(), abs=1e-6)
    first, last = data.span
    steps, examples = fit.family.log_steps(last), fit.family.log_examples(first)
    for quantity, row, log_batch, moved in (
        (steps, twin.row(last), 0.0, 0.1),
        (examples, twin.row(first), first, -0.15),
        (examples - steps, twin.row(first) - twin.row(last), first, 0.12),
    ):
        value = fit.at(quantity) + moved
        _, sse = fit.family.solve(data, quantity, value)
        assert sse == pytest.approx(twin.least(row, value - log_batch), abs=1e-6)
        assert sse > fit.sse + 1e-5


def test_a_value_that_no_curve_has_is_infinitely_far() -> None:
    fit = Fit.of(points(log_steps(X, theta(100, 40))))
    slope = (fit.family.log_steps(X[1]) - fit.family.log_steps(X[0])).over(X[1] - X[0])
    assert np.isfinite(fit.excess(slope, -1.0))
    assert fit.excess(slope, -1.2) == np.inf
    assert fit.excess(slope, 0.1) == np.inf


@given(st.lists(st.floats(0, 8), min_size=3, max_size=10))
def test_every_fit_is_convex_with_slopes_within_the_bounds(logs: list[float]) -> None:
    fit = Fit.of(points(logs))
    along = np.array([fit.log_steps(x) for x in fit.grid])
    slopes = np.diff(along) / np.diff(fit.grid)
    assert slopes.min() >= -1 - 1e-3
    assert slopes.max() <= 1e-3
    assert np.diff(slopes).min() >= -2e-3


def exact(name: str) -> np.ndarray:
    """Log steps (12,) of a curve of the family."""
    share = np.arange(12) / 11
    return {
        "knee": log_steps(X, theta(100, 40)),
        "power": 9 - 0.8 * X,
        "bend": 9 - X + share**2 * X[-1] / 2,  # slopes from -1 to 0, linear in log B
    }[name]


@pytest.mark.parametrize("name", ["knee", "power", "bend"])
def test_curves_of_the_family_are_reproduced(name: str) -> None:
    y = exact(name)
    fit = Fit.of(points(y))
    assert fit.sse < 1e-9
    assert [fit.log_steps(x) for x in X] == pytest.approx(y, abs=1e-4)
    located = locate(points(y), tolerance=0.2)
    first, last = (y[1] - y[0]) / X[1], (y[-1] - y[-2]) / X[1]
    assert located.tested("slope_first", 0.9)[0] == pytest.approx(first, abs=0.01)
    assert located.tested("slope_last", 0.9)[0] == pytest.approx(last, abs=0.01)
    for quantity, value in (
        ("min_steps", y[-1]), ("min_examples", y[0]), ("critical_batch_size", y[0] - y[-1]),
    ):  # fmt: skip
        assert located.tested(quantity, 0.9)[0] == pytest.approx(value, abs=0.01)


def test_the_ends_of_a_knees_regimes_are_where_it_leaves_and_comes() -> None:
    """Over the tested range: E(B) = 1.2 E(1) and S(B) = 1.2 S(2048), of S = 100 (1 + 40/B)."""
    located = locate(points(exact("knee")), tolerance=0.2)
    until = np.log(1.2 * 41 - 40)
    begins = np.log(40 / (1.2 * (1 + 40 / 2048) - 1))
    knots = X[1] / BETWEEN  # between which the fit is a line
    assert located.tested("perfect_scaling_until", 0.9)[0] == pytest.approx(until, abs=knots)
    assert located.tested("maximal_parallelism_from", 0.9)[0] == pytest.approx(begins, abs=knots)
    assert located.tested("slope_half", 0.9)[0] == pytest.approx(np.log(40), abs=X[1])
    stretch = np.cumsum(np.repeat([8, -X[1], -X[1] / 2, 0], [1, 4, 4, 3]))
    middle = locate(points(stretch), tolerance=0.2).tested("slope_half", 0.9)[0]
    assert middle == pytest.approx(X[6])


def test_points_that_scatter_more_weigh_less() -> None:
    y = exact("knee")
    y[3] += 1.0
    known = np.where(np.arange(12) == 3, 1.0, 0.01)
    apart = [
        abs(Fit.of(points(y, variance=variance)).log_steps(X[3]) - exact("knee")[3])
        for variance in (known, 0.01)
    ]
    assert apart[0] < 0.1 < apart[1]
    # Where one variance is not known, none counts as a weight.
    unknown = np.where(np.arange(12) == 5, 0.0, known)
    assert points(y, variance=unknown).weights.tolist() == [1.0] * 12


def test_the_noise_of_points_is_the_floor_of_the_curves() -> None:
    """Points that lie on the curve exactly, and are known to 20 %."""
    sure, unsure = (Fit.of(points(exact("knee"), variance=v)) for v in (0.0, 0.04))
    assert unsure.noise == pytest.approx(0.2)
    # The prior: points that happen to be convex are not exact.
    assert sure.noise == pytest.approx(PRIOR_NOISE)


def test_wider_families_are_taken_where_the_data_ask_for_them() -> None:
    steep = fits(points(8 - 1.4 * np.minimum(X, 2) - 0.3 * np.maximum(X - 2, 0)))
    assert steep.penalty_p < 0.001
    assert steep.best.family.low == -2
    assert steep.best.family.high == 0
    rising = fits(points(8 - 0.9 * np.minimum(X, 4) + 0.2 * np.maximum(X - 4, 0)))
    assert rising.rise_p < 0.001
    assert (rising.best.family.low, rising.best.family.high) == (-1, 1)
    bowl = 8 - 1.4 * np.minimum(X, 2) - 0.4 * np.clip(X - 2, 0, 3) + 0.3 * np.maximum(X - 5, 0)
    both = fits(points(bowl))
    assert (both.best.family.low, both.best.family.high) == (-2, 1)
    knee = fits(points(exact("knee")))
    assert (knee.best.family.low, knee.best.family.high) == (-1, 0)
    assert knee.near == ()
    four = fits(points(8 - 1.4 * X[:4]))
    assert four.penalty_p == four.rise_p == 1.0


def test_a_curve_that_may_have_a_penalty_has_intervals_of_both_families() -> None:
    drawn = (exact("knee") + np.random.default_rng(i).normal(0, 0.05, 12) for i in range(40))
    y = next(each for each in drawn if fits(points(each)).near)
    located = locate(points(y), tolerance=0.2)
    for name, profiles in located.profiles.items():
        assert len(profiles) > 1
        _, low, high = located.tested(name, 0.9)
        for profile in profiles:
            ends = profile.ends(0.9)
            assert not low > ends[0] + 1e-3, name
            assert not high < ends[1] - 1e-3, name


def test_knots_lie_between_the_data() -> None:
    family = Family(X[:3])
    assert family.knots == pytest.approx(np.log(2) * np.arange(9) / 4)


@pytest.mark.skipif(not REFERENCE.is_file(), reason="BATCHSCALE_REFERENCE has no convex.py")
@pytest.mark.parametrize("name", TEXT)
def test_quantities_are_those_of_the_prototype(name: str) -> None:
    quantities = runpy.run_path(str(REFERENCE))["quantities"]
    logs = np.log(TEXT[name])
    theirs = quantities(np.exp(X[: len(logs)]), logs)
    located = locate(points(logs), tolerance=0.2)
    compared = 0
    for quantity, expected in theirs.items():
        ours = dict(
            zip(("value", "low", "high"), np.exp(located.tested(quantity, 0.9)), strict=True)
        )
        for end, number in expected.items():
            if number is not None:  # else a bound
                assert ours[end] == pytest.approx(number, rel=2e-3), (quantity, end)
                compared += 1
    assert compared >= 9
