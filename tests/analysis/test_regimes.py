"""The regimes of a curve: goldens, open ends, and everything that gets a note."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, Interval, TooFewBatchSizesError, curves, regimes
from analysis.curves.points import Point
from analysis.fit.knee import log_steps, theta
from analysis.fit.regimes import slope_text
from analysis.notes import Note, codes
from results.errors import ResultsError
from results.targets.target import Target

SIZES = [float(2**i) for i in range(12)]
Plain = Callable[..., Curve]


def exact(sizes: list[float], *params: float) -> np.ndarray:
    return np.exp(log_steps(np.log(sizes), theta(*params)))


def noisy(sizes: list[float], *params: float, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return exact(sizes, *params) * np.exp(rng.normal(0, noise, len(sizes)))


def test_a_slope_that_is_zero_but_for_rounding_has_no_sign() -> None:
    assert slope_text(Interval(value=-1e-16, low=-0.25, high=0.0)) == "0.00 [-0.25, 0.00]"


def test_an_exact_curve_is_read_exactly(plain_curve: Plain) -> None:
    """All over the tested range: S(2048), E(1), and where S and E are a fifth more."""
    found = regimes(plain_curve(SIZES, exact(SIZES, 100, 40)))
    least, most = 100 * (1 + 40 / 2048), 100 * 41
    expected = {
        "perfect_scaling_until": 1.2 * 41 - 40,
        "maximal_parallelism_from": 40 / (0.012 * least - 1),
        "critical_batch_size": most / least,
        "min_steps": least,
        "min_examples": most,
    }
    for name, value in expected.items():
        interval = getattr(found, name)
        between = name in ("perfect_scaling_until", "maximal_parallelism_from")  # knots
        assert interval.value == pytest.approx(value, rel=2**0.25 - 1 if between else 1e-3)
        assert interval.reached
        assert interval.low < interval.value < interval.high
    assert found.small_level
    assert found.large_level
    assert found.slopes["first"].value == pytest.approx(np.log2(42 / 2 / 41), abs=1e-3)
    assert found.slopes["last"].value == pytest.approx(np.log2(1064 / 1024 * 1024 / 1064), abs=0.03)
    assert found.slopes["half"].value == pytest.approx(40, rel=0.5)
    assert found.best["form"] == "McCandlish's knee"
    assert found.steps([40])[0] == pytest.approx(200, rel=1e-3)


@pytest.mark.parametrize("bend", [0.6, 1.0, 3.0])
def test_a_noisy_curve(plain_curve: Plain, bend: float) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 100, 40, bend)))
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        value, low, high = np.exp(found.located.tested(name, 0.9))
        assert low < value < high
        assert high / low < 2
    steps = exact(SIZES, 100, 40, bend)
    true = steps[0] / steps[-1]
    assert np.exp(found.located.tested("critical_batch_size", 0.9)[0]) == pytest.approx(true, 0.3)


def test_the_json_of_the_design(plain_curve: Plain) -> None:
    answer = regimes(plain_curve(SIZES, noisy(SIZES, 100, 3000))).to_dict()
    assert list(answer) == [
        "optimizer",
        "perfect_scaling_until",
        "maximal_parallelism_from",
        "critical_batch_size",
        "min_steps",
        "min_examples",
        "slopes",
        "level_ends",
        "level",
        "tolerance",
        "batch_sizes",
        "trials",
        "target",
        "example_unit",
        "censored",
        "estimator",
        "points",
        "noise",
        "best",
        "best_batch_size",
        "small_batch_penalty",
        "rise",
        "notes",
    ]
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    maximal = answer["maximal_parallelism_from"]
    assert maximal["value"] is None
    assert maximal["high"] is None
    assert set(answer["perfect_scaling_until"]) == {"value", "low", "high"}
    assert answer["level_ends"] == {"small": True, "large": False}
    assert list(answer["slopes"]) == ["first", "last", "half"]
    assert answer["slopes"]["first"]["value"] == pytest.approx(-1, abs=0.1)
    assert answer["slopes"]["half"]["high"] is None
    assert 0.01 < answer["noise"] < 0.1
    assert answer["rise"] is None


def test_perfect_scaling_alone_bounds_what_lies_beyond(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 1, 1e6)))
    assert found.perfect_scaling_until.low > 64  # type: ignore[operator]
    assert found.perfect_scaling_until.high is None
    assert found.maximal_parallelism_from.low > 512  # type: ignore[operator]
    assert not found.maximal_parallelism_from.reached
    assert found.critical_batch_size.value is found.critical_batch_size.high is None
    assert found.critical_batch_size.low > 1024  # type: ignore[operator]
    assert found.min_steps.value is found.min_steps.low is None
    assert found.min_steps.high < 1000  # type: ignore[operator]
    assert found.min_examples.value == pytest.approx(1e6, rel=0.1)
    (note,) = [note for note in found.notes if note.code == "large_end"]
    assert note.startswith("the large end is not level: 75% fewer steps after two doublings")


def test_a_plateau_alone_bounds_what_lies_before(plain_curve: Plain) -> None:
    sizes = [float(2**i) for i in range(6, 14)]
    found = regimes(plain_curve(sizes, noisy(sizes, 200, 1)))
    assert found.maximal_parallelism_from.low is None
    assert found.maximal_parallelism_from.high < 1024  # type: ignore[operator]
    assert found.perfect_scaling_until.value is None
    assert found.perfect_scaling_until.low is None
    assert found.min_steps.value == pytest.approx(200, rel=0.1)
    assert found.min_examples.value is found.min_examples.low is None
    assert found.min_examples.high < 64 * 250  # type: ignore[operator]
    assert found.critical_batch_size.value is found.critical_batch_size.low is None
    assert found.critical_batch_size.high < 100  # type: ignore[operator]
    (note,) = [note for note in found.notes if note.code == "small_end"]
    assert note.startswith("the small end is not level: 300% more examples after two doublings")
    assert note.endswith(", never -1; the fewest examples are an upper bound")


def test_an_end_that_may_not_be_level_is_said_so(plain_curve: Plain) -> None:
    """Its fitted change is within the tolerance, but not surely so."""
    drawn = (regimes(plain_curve(SIZES, noisy(SIZES, 100, 90, seed=i))) for i in range(20))
    found = next(each for each in drawn if any("may not be level" in n for n in each.notes))
    assert found.located.change(small=False) < 1.2 or found.located.change(small=True) < 1.2
    assert not (found.small_level and found.large_level)


def test_a_sharp_knee(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, exact(SIZES, 100, 32, 8)))
    until, begins = found.perfect_scaling_until, found.maximal_parallelism_from
    assert until.value == pytest.approx(32 * 1.2, rel=0.2)
    assert begins.value == pytest.approx(32 / 1.2, rel=0.2)
    assert Note("overlap") in found.notes


def test_a_slope_of_its_own(plain_curve: Plain) -> None:
    found = regimes(plain_curve(SIZES, noisy(SIZES, 100, 60, 1.5, 0.7, noise=0.01)))
    perfect = found.perfect_scaling_until
    assert perfect.value is perfect.low is None
    assert perfect.high < 4  # type: ignore[operator]
    first = found.slopes["first"]
    assert first.value == pytest.approx(-0.7, abs=0.05)
    assert found.best["a"] == pytest.approx(0.7, abs=0.03)
    assert found.best["form"] == "knee with a slope of its own"
    assert found.critical_batch_size.value is found.critical_batch_size.low is None
    assert found.min_examples.value is None


def test_points_that_rise_off_the_plateau_are_part_of_the_curve(plain_curve: Plain) -> None:
    steps = noisy(SIZES, 100, 20, noise=0.02)
    steps[-3:] *= [1.15, 1.4, 1.7]
    found = regimes(plain_curve(SIZES, steps))
    assert found.rise == pytest.approx(1.7, rel=0.1)
    assert found.large_level
    assert f"batch size 2,048 takes {found.rise:.2f} times the fewest" in " ".join(found.notes)
    assert found.min_steps.holds(steps.min())
    assert found.best["points"] == 9  # up to the quickest
    assert found.to_dict()["rise"] == found.rise


def test_a_narrow_range_is_not_level_because_it_is_narrow(plain_curve: Plain) -> None:
    """Over a quarter of a doubling nothing is seen of either regime."""
    fit = regimes(plain_curve([256, 272, 288, 304], exact([256, 272, 288, 304], 1.0, 1e6)))
    assert not fit.small_level
    assert not fit.large_level
    assert fit.critical_batch_size == Interval()
    assert "16% fewer steps over the tested batch sizes" in " ".join(fit.notes)


def test_where_steps_rise_again_the_knee_is_of_smaller_batch_sizes(plain_curve: Plain) -> None:
    sizes = [2.0**i for i in range(4, 14)]
    rising = 1 + np.array(sizes) / 3000
    missed = Point(batch_size=16384, steps=None, trials=1)
    curve = plain_curve(sizes, noisy(sizes, 500, 100, noise=0.01) * rising)
    fit = regimes(replace(curve, points=(*curve.points, missed)), definition="mccandlish2018")
    assert fit.rise is not None
    assert np.exp(fit.knee.x[[0, -1]]) == pytest.approx([16, 512])
    assert fit.fitted_over == (16, 8192)
    assert fit.knee.asymptotes()["critical_batch_size"] == pytest.approx(100, rel=0.3)
    assert fit.defined is not None
    assert fit.defined.value == pytest.approx(100, rel=0.2)
    (note,) = [note for note in fit.notes if note.code == "rise"]
    assert (note.values["last"], note.values["until"]) == (8192, 512)


def test_few_batch_sizes(plain_curve: Plain) -> None:
    """They are no special case, except of the knee."""
    sizes = [1.0, 8.0, 64.0, 512.0]
    found = regimes(plain_curve(sizes, noisy(sizes, 100, 20)))
    assert found.best["k"] == 1
    assert found.min_examples.high is not None
    three = regimes(plain_curve(sizes[:3], noisy(sizes[:3], 100, 20)))
    assert three.min_steps.high is not None
    for count, words in ((2, "two batch sizes"), (1, "one batch size")):
        with pytest.raises(TooFewBatchSizesError, match=words):
            regimes(plain_curve(sizes[:count], [9.0] * count))


def test_no_target_is_named_where_there_is_none(plain_curve: Plain) -> None:
    """Steps of a file have none, and no command could take an easier one."""
    steps = plain_curve([1.0, 8.0], [9.0] * 2)
    goal = Target.parse("validation_error < 0.1")
    for curve, words, hint in (
        (replace(steps, target=None), "two batch sizes have steps, and", "add batch sizes"),
        (replace(steps, target=goal), "two batch sizes reached the target, and", "easier --target"),
        (
            replace(steps, target=None, points=()),
            "no batch size has steps, and",
            '"METRIC < VALUE"',
        ),
    ):
        with pytest.raises(TooFewBatchSizesError, match=words) as caught:
            regimes(curve)
        assert str(caught.value.hint).endswith(hint)


def test_repeats_are_one_point_a_batch_size(plain_curve: Plain) -> None:
    """What the runs of a batch size share is not averaged away: waves of 30 % are in the noise."""
    rng = np.random.default_rng(1)
    sizes = SIZES * 3
    good = np.tile(exact(SIZES, 100, 40), 3) * np.exp(rng.normal(0, 0.02, 36))
    wavy = good * np.tile(1 + 0.3 * (np.arange(12) % 2), 3)
    smooth, found = (regimes(plain_curve(sizes, steps)) for steps in (good, wavy))
    assert found.noise > 2 * smooth.noise
    assert found.best["points"] == 12
    assert Note("mean_of_runs") in found.notes
    waves = wavy.reshape(3, 12)
    means = regimes(plain_curve(SIZES, np.exp(np.log(waves).mean(0))))
    first, second = (each.located.tested("min_steps", 0.9) for each in (found, means))
    assert first[0] == pytest.approx(second[0], abs=0.05)
    assert first[2] - first[1] == pytest.approx(second[2] - second[1], rel=0.2)


@pytest.mark.slow
def test_what_runs_of_a_batch_size_share_is_in_the_intervals(plain_curve: Plain) -> None:
    """Curves whose batch sizes scatter by 8 %, with eight runs that scatter by 2 % more: counted
    as ninety-six points they would say far more than they know."""
    rng = np.random.default_rng(8)
    steps = exact(SIZES, 100, 40)
    held = []
    for _ in range(40):
        shared = rng.normal(0, 0.08, 12)
        runs = np.log(steps) + shared + rng.normal(0, 0.02, (8, 12))
        found = regimes(plain_curve(SIZES * 8, np.exp(runs).ravel()))
        _, low, high = found.located.tested("critical_batch_size", 0.9)
        held.append(low <= np.log(steps[0] / steps[-1]) <= high)
    assert np.mean(held) >= 0.85


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
    assert "coarse_grid" not in codes(regimes(curve).notes)
    coarse = measured[measured["step"].isin([1, *grid[::40], grid[-1]])]
    hits = measured[measured["validation_error"] < 0.5]
    (curve,) = curves(trials, measurements=pd.concat([coarse, hits]).drop_duplicates())
    assert "coarse_grid" in codes(regimes(curve).notes)


def test_wrong_arguments(plain_curve: Plain) -> None:
    curve = plain_curve(SIZES, exact(SIZES, 100, 40))
    for tolerance in (0.0, -1.0, float("nan"), 11.0):
        with pytest.raises(ResultsError, match="tolerance"):
            regimes(curve, tolerance=tolerance)
    with pytest.raises(ResultsError, match="level"):
        regimes(curve, level=1.0)


def test_a_greater_tolerance_widens_both_regimes(plain_curve: Plain) -> None:
    curve = plain_curve(SIZES, exact(SIZES, 100, 40))
    strict, lax = (regimes(curve, tolerance=each).located for each in (0.1, 0.4))
    for name, grows in (("perfect_scaling_until", 1), ("maximal_parallelism_from", -1)):
        narrow, wide = (np.array(each.tested(name, 0.9)) for each in (strict, lax))
        assert (grows * (wide - narrow) > 0).all()


def of_brackets(plain_curve: Plain, widths: Sequence[float], least: float = 1) -> set[str]:
    """The codes of the notes on a curve whose hits have brackets of these shares of their steps,
    ``least`` times those of the estimator."""
    sizes = SIZES[: len(widths)]
    curve = plain_curve(sizes, exact(sizes, 100, 40))
    steps = [least * (point.steps or 0.0) for point in curve.points]
    points = [
        replace(point, minimum=fewest, last_miss=fewest * (1 - width))
        for fewest, point, width in zip(steps, curve.points, widths, strict=True)
    ]
    notes = {*codes(regimes(replace(curve, points=tuple(points))).notes)}
    return notes & {"wide_brackets", "unequal_brackets"}


def test_wide_and_unequal_brackets_are_noted(plain_curve: Plain) -> None:
    of_equal_steps = [0.01, 0.02, 0.04, 0.08, 0.2, 0.3]
    assert of_brackets(plain_curve, [0.02] * 6) == set()
    assert of_brackets(plain_curve, [0.02] * 6, least=0.4) == set()
    assert of_brackets(plain_curve, [0.2, 0.1, 0.3, 0.15, 0.2, 0.1]) == set()
    assert of_brackets(plain_curve, [0.02] * 5 + [0.6]) == {"wide_brackets", "unequal_brackets"}
    assert of_brackets(plain_curve, of_equal_steps) == {"unequal_brackets"}
    assert of_brackets(plain_curve, of_equal_steps[::-1]) == {"unequal_brackets"}
