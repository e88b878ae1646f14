"""How wide an interval a search is expected to give, against searches with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.curves.curve import Curve, curves
from analysis.fit.knee import BATCH, theta
from analysis.widths import prior
from analysis.widths.expected import Design, Expected, Known, designs, expected
from analysis.widths.scatter import GRID, Gaps, best
from analysis.widths.width import widths
from validation import surface as surfaces
from validation.stopping import STAGES, until
from validation.surface import Surface, sweep

QUANTITY = "critical_batch_size"
SIZES = surfaces.SIZES
EASY = Surface(dimensions=1, noise=0.08)
OUTSIDE = Surface(dimensions=1, noise=0.08, narrowing=4 / 3, power=1.0)
"""Steps rise with the distance from the best rate itself, by a slope that grows with the size."""


def studies(trials: pd.DataFrame, dimensions: int) -> pd.DataFrame:
    names = ["study", "workload", "dataset", "optimizer", "schedule", "batch_size"]
    rows = trials[names].drop_duplicates()
    return rows.assign(dimensions=dimensions, search_space=None)


def pilot(surface: Surface, trials: int, seed: int) -> Curve:
    rows = until(sweep(surface, 2 * trials, np.random.default_rng(seed), "pilot"), trials)
    (curve,) = curves(rows, studies=studies(rows, surface.dimensions))
    return curve


def planned(surface: Surface, seed: int, within: float) -> Expected | None:
    """The first design that is expected to be within the width, if one of them is."""
    known = Known.of_pilot(pilot(surface, 16, seed))
    assert known is not None
    alternatives = [Design(batch_sizes=SIZES, trials=n) for n in STAGES]
    made = expected(known, alternatives, QUANTITY, within, ratio=surfaces.RATIO, simulated=30)
    return next((each for each in made if each.enough), None)


def kept(surface: Surface, plan: Expected, within: float, sweeps: int) -> float:
    """The share of fresh sweeps of a plan that are within the width."""
    factors = []
    for seed in range(sweeps):
        rows = sweep(surface, plan.design.trials, np.random.default_rng([9, seed]), f"{seed}")
        (one,) = widths(rows, studies(rows, surface.dimensions), QUANTITY)
        factors.append(one.factor)
    return float(np.mean(np.array(factors) <= within))


def test_what_a_plan_promises_is_kept() -> None:
    plan = planned(EASY, 3, 1.5)
    assert plan is not None
    assert plan.share >= 0.8
    assert plan.low <= plan.factor <= 1.5
    assert kept(EASY, plan, 1.5, 10) >= 0.65


@pytest.mark.slow
@pytest.mark.parametrize(("surface", "within"), [(EASY, 1.4), (OUTSIDE, 2.0)])
def test_plans_of_many_pilots_keep_their_promises(surface: Surface, within: float) -> None:
    plans = [planned(surface, seed, within) for seed in range(5)]
    made = [plan for plan in plans if plan is not None]
    assert len(made) >= 3
    shares = [kept(surface, plan, within, 20) for plan in made]
    assert min(shares) >= 0.65


@pytest.mark.parametrize("luck", [0.03, 0.15, 0.32])
def test_the_scatter_of_pilots_is_recovered(luck: float) -> None:
    """A pilot of twelve batch sizes says it within a factor; many say it well."""
    estimates = []
    for seed in range(20):
        logs = best(np.random.default_rng(seed), (12,), 16, 1, (2.0, luck))
        gaps = Gaps.of([[*np.exp(each)] for each in logs], 16, 1)
        assert gaps is not None
        estimates.append(float(gaps.weights @ GRID[:, 1]))
    assert abs(np.median(estimates) - luck) < 0.35 * luck + 0.01
    assert np.quantile(estimates, 0.9) < 2 * luck + 0.02


def test_a_pilot_that_says_too_little_is_none() -> None:
    curve = pilot(EASY, 8, 0)
    assert Known.of_pilot(curve) is not None
    assert Known.of_pilot(pilot(EASY, 4, 0)) is None
    assert Gaps.of([[1.0], [1.0, 2.0], []], 8, 1) is None
    gaps = Gaps.of([[1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0]], 8, 1)
    assert gaps is not None
    assert gaps.each.shape == (2, 2)
    assert gaps.weights.sum() == pytest.approx(1)


def test_without_tuning_the_luck_alone_scatters() -> None:
    steps = best(np.random.default_rng(0), (5,), 8, 0, (9.0, 0.1))
    assert np.abs(steps).max() < 0.5
    assert (np.diff(steps) >= 0).all()


def test_alternatives_come_by_cost_up_to_one_beyond_the_first_that_is_enough() -> None:
    every = designs([2**i for i in range(8)], (16, 8, 8), (1, 3))
    assert [each.trained for each in every] == sorted(each.trained for each in every)
    assert {each.batch_sizes for each in every} == {tuple(2**i for i in range(8)), (2, 8, 32, 128)}
    assert len(designs([1, 2, 4], (8, 16))) == 2
    scatter = np.array([[1.0, 0.03]])
    known = Known(knees=theta(100, 45)[None], scatters=scatter, dimensions=1)
    alternatives = [Design(batch_sizes=SIZES, trials=n) for n in (8, 16, 32, 64, 128)]
    made = [*expected(known, alternatives, QUANTITY, 1.5, ratio=1.05, simulated=8)]
    enough = [each.enough for each in made]
    assert enough.index(True) == len(made) - 2
    again = [*expected(known, alternatives[:1], QUANTITY, 1.5, ratio=1.05, simulated=8)]
    assert again == made[:1]
    line = Known(knees=theta(1e-3, 1e9)[None], scatters=scatter, dimensions=1)
    (never,) = expected(line, alternatives[:1], QUANTITY, 1.5, ratio=1.05, simulated=4)
    assert (never.share, never.factor) == (0, math.inf)


def test_packaged_curves_say_where_knees_lie_and_how_searches_scatter() -> None:
    known = prior.known([8, 4096], 2)
    places = (known.knees[:, BATCH] - math.log(8)) / math.log(512)
    assert 0.2 < np.median(places) < 0.8  # people test batch sizes about the knee
    assert known.dimensions == 2
    assert 0.02 < np.median(known.scatters[:, 1]) < 0.4
    assert len(np.unique(known.knees[:, BATCH])) > 30
