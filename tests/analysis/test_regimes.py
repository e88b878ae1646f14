"""The regimes of a curve: goldens, open ends, and everything that gets a note."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, TooFewBatchSizesError, curves, regimes
from analysis.fit.definitions import beta
from analysis.fit.knee import log_steps, theta
from results.errors import ResultsError

SIZES = [float(2**i) for i in range(12)]
Plain = Callable[..., Curve]


def exact(sizes: list[float], *params: float) -> np.ndarray:
    return np.exp(log_steps(np.log(sizes), theta(*params)))


def noisy(sizes: list[float], *params: float, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return exact(sizes, *params) * np.exp(rng.normal(0, noise, len(sizes)))


def test_an_exact_curve_is_read_exactly(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, exact(SIZES, 100, 40)))
    expected = {
        "perfect_scaling_until": 1.2 + 8,  # (1 + t) B0 + t B_crit
        "maximal_parallelism_from": 200,
        "critical_batch_size": 40,
        "min_steps": 100,
        "min_examples": 4000,
    }
    for name, value in expected.items():
        interval = getattr(found, name)
        assert interval.value == pytest.approx(value, rel=1e-3)
        assert interval.reached
        assert interval.low == pytest.approx(value, rel=1e-3)
        assert interval.high == pytest.approx(value, rel=1e-3)
    assert found.best["form"] == "McCandlish's knee"
    assert found.steps([40])[0] == pytest.approx(200, rel=1e-3)


@pytest.mark.parametrize("bend", [0.6, 1.0, 3.0])
def test_a_noisy_curve(plain_curve: Plain, bend: float) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 100, 40, bend)))
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        interval = getattr(found, name)
        assert interval.low < interval.value < interval.high
        assert interval.high / interval.low < 2
    assert found.critical_batch_size.value == pytest.approx(40, rel=0.3)


def test_the_json_of_the_design(plain_curve: Plain) -> None:
    answer = regimes(plain_curve(SIZES, noisy(SIZES, 100, 3000))).to_dict()
    assert list(answer) == [
        "optimizer",
        "perfect_scaling_until",
        "maximal_parallelism_from",
        "critical_batch_size",
        "min_steps",
        "min_examples",
        "level",
        "tolerance",
        "batch_sizes",
        "trials",
        "target",
        "example_unit",
        "censored",
        "estimator",
        "points",
        "best",
        "forms",
        "best_batch_size",
        "small_batch_penalty",
        "notes",
    ]
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    maximal = answer["maximal_parallelism_from"]
    assert maximal["value"] is None
    assert maximal["high"] is None
    assert set(answer["perfect_scaling_until"]) == {"value", "low", "high"}


def test_perfect_scaling_alone_bounds_what_lies_beyond(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 1, 1e6)))
    assert found.perfect_scaling_until.low > 64  # type: ignore[operator]
    assert found.perfect_scaling_until.high is None
    assert found.maximal_parallelism_from.low > 512  # type: ignore[operator]
    assert not found.maximal_parallelism_from.reached
    assert found.critical_batch_size.value is None
    assert found.min_steps.value is found.min_steps.low is None
    assert found.min_steps.high < 1000  # type: ignore[operator]
    assert found.min_examples.value == pytest.approx(1e6, rel=0.1)


def test_a_plateau_alone_bounds_what_lies_before(plain_curve: Plain) -> None:
    sizes = [float(2**i) for i in range(6, 14)]
    found = regimes(plain_curve(sizes, noisy(sizes, 200, 1)))
    assert found.maximal_parallelism_from.low is None
    assert found.maximal_parallelism_from.high < 1024  # type: ignore[operator]
    assert found.perfect_scaling_until.value is None
    assert found.perfect_scaling_until.low is None
    assert found.min_steps.value == pytest.approx(200, rel=0.1)
    assert found.min_examples.value is None
    assert any("beyond perfect scaling" in note for note in found.notes)


def test_a_sharp_knee(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, exact(SIZES, 100, 40, 6)))
    assert found.perfect_scaling_until.value == found.maximal_parallelism_from.value
    assert found.perfect_scaling_until.value == pytest.approx(40, rel=1e-3)
    assert "sharp knee: no diminishing-returns region at this tolerance" in found.notes


def test_a_slope_of_its_own(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 100, 60, 1.5, 0.8, noise=0.01)))
    perfect = found.perfect_scaling_until
    assert (perfect.value, perfect.low, perfect.high) == (None, None, 1.0)
    (note,) = [note for note in found.notes if "no perfect scaling" in note]
    assert "B^-0.8" in note
    assert found.best["a"] == pytest.approx(0.8, abs=0.03)
    assert found.critical_batch_size.value is not None
    assert found.critical_batch_size.holds(60)
    # The least B·S that was tested, at the smallest batch size.
    assert found.min_examples.value == pytest.approx(found.steps([1])[0], rel=1e-6)


def test_points_that_rise_off_the_plateau_leave_the_fit(plain_curve: Plain) -> None:
    steps = noisy(SIZES, 100, 20, noise=0.02)
    steps[-2:] *= [1.3, 1.6]
    found = regimes(plain_curve(SIZES, steps))
    assert found.left_out == (1024, 2048)
    assert any("at 1024, 2048: left out" in note for note in found.notes)
    assert found.critical_batch_size.value == pytest.approx(20, rel=0.2)
    assert found.best["points"] == 10


def test_few_batch_sizes(plain_curve: Plain) -> None:
    sizes = [1.0, 8.0, 64.0, 512.0]
    found = regimes(plain_curve(sizes, noisy(sizes, 100, 20)))
    assert found.best["k"] == 1
    assert any("k is fixed at 1: 4 distinct" in note for note in found.notes)
    for count, words in ((2, "two batch sizes"), (1, "one batch size")):
        with pytest.raises(TooFewBatchSizesError, match=words):
            regimes(plain_curve(sizes[:count], [9.0] * count))


def test_lack_of_fit_is_told_where_there_are_repeats(plain_curve: Plain) -> None:
    rng = np.random.default_rng(1)
    sizes = SIZES * 3
    good = np.tile(exact(SIZES, 100, 40), 3) * np.exp(rng.normal(0, 0.02, 36))
    wavy = good * np.tile(1 + 0.3 * (np.arange(12) % 2), 3)
    assert not any("does not fit" in note for note in regimes(plain_curve(sizes, good)).notes)
    found = regimes(plain_curve(sizes, wavy, repeats=True))
    assert any("does not fit" in note for note in found.notes)
    assert any("every run is a point" in note for note in found.notes)
    # Each batch size is one point then: what its runs share is not averaged away.
    waves = wavy.reshape(3, 12)
    means = regimes(plain_curve(SIZES, np.exp(np.log(waves).mean(0))))
    assert found.best["points"] == 12
    assert found.critical_batch_size == means.critical_batch_size


def test_what_runs_of_a_batch_size_share_is_in_the_intervals() -> None:
    """Curves whose batch sizes scatter by 8 %, with eight runs that scatter by 2 % more: counted
    as ninety-six points they say far more than they know."""
    rng = np.random.default_rng(8)
    x = np.tile(np.log(SIZES), (100, 1))
    y = np.log(exact(SIZES, 100, 40)) + rng.normal(0, 0.08, x.shape)
    runs = np.repeat(y, 8, axis=1) + rng.normal(0, 0.02, (100, 96))
    means = runs.reshape(100, 12, 8).mean(2)
    held = {}
    for name, (at, steps) in {"runs": (np.repeat(x, 8, 1), runs), "means": (x, means)}.items():
        _, low, high = beta(at, steps)
        held[name] = np.mean(~(low > np.log(40)) & ~(high < np.log(40)))
    assert held["runs"] < 0.6
    assert 0.85 <= held["means"] <= 0.95


def test_dropping_every_second_evaluation(
    search: Callable[..., pd.DataFrame], looks: Callable[..., np.ndarray]
) -> None:
    trials = search(noise=0.02)
    grid = looks()
    measured = pd.DataFrame(
        [
            {
                "study": row.study,
                "trial": row.trial,
                "step": step,
                "validation_error": 0.03 if step == row.steps_to_target else 0.5,
            }
            for row in trials.dropna(subset="steps_to_target").itertuples()
            for step in grid[grid <= row.steps_to_target]
        ]
    )
    (curve,) = curves(trials, measurements=measured)
    assert curve.coarse is not None
    pairs = list(zip(curve.coarse.points, curve.points, strict=True))
    assert all(thin.steps >= fine.steps for thin, fine in pairs)  # type: ignore[operator]
    assert any(thin.steps > fine.steps for thin, fine in pairs)  # type: ignore[operator]
    assert not any("second evaluation" in note for note in regimes(curve).notes)
    coarse = measured[measured["step"].isin([1, *grid[::40], grid[-1]])]
    hits = measured[measured["validation_error"] < 0.5]
    (curve,) = curves(trials, measurements=pd.concat([coarse, hits]).drop_duplicates())
    assert any(
        note.startswith("with every second evaluation dropped") for note in regimes(curve).notes
    )


def test_wrong_arguments(plain_curve: Plain) -> None:
    curve = plain_curve(SIZES, exact(SIZES, 100, 40))
    for tolerance in (0.0, -1.0, float("nan"), 11.0):
        with pytest.raises(ResultsError, match="tolerance"):
            regimes(curve, tolerance=tolerance)
    with pytest.raises(ResultsError, match="level"):
        regimes(curve, level=1.0)


def test_a_greater_tolerance_widens_both_regimes(plain_curve: Plain) -> None:
    curve = plain_curve(SIZES, noisy(SIZES, 100, 40))
    strict, lax = regimes(curve, tolerance=0.1), regimes(curve, tolerance=0.4)
    narrow, wide = strict.perfect_scaling_until.value, lax.perfect_scaling_until.value
    assert narrow < wide  # type: ignore[operator]
    late, early = strict.maximal_parallelism_from.value, lax.maximal_parallelism_from.value
    assert late > early  # type: ignore[operator]
