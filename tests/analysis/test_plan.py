"""Time and cost by the number of devices: known answers, intervals, and what is not known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from analysis import regimes
from analysis.curves.curve import Curve
from analysis.fit.interval import Interval
from analysis.machines.plan import Plan, plans, winners
from analysis.machines.step_time import Measured, Modelled, step_time
from analysis.notes import Note
from results.batch_phases import BatchPhases
from results.errors import ResultsError
from tests.analysis.conftest import plain_curve

SIZES = 2.0 ** np.arange(13)
LEAST, CRITICAL = 100.0, 128.0
EACH, FIXED = 1e-3, 4e-3
"""Seconds of an example on one device, and of a step besides."""
ONE = {"seconds_per_example": 1.0}


def steps(sizes: Any) -> Any:
    return LEAST * (1 + CRITICAL / np.asarray(sizes, dtype=float))


def plan_of(curve: Curve, times: Any, devices: list[int], **how: Any) -> Plan:
    (made,) = plans([curve], [regimes(curve)], times, devices, **how)
    return made


def times(n: int) -> float:
    """The least of S(B) · (fixed + each · B/n), where its derivative in B is 0."""
    best = math.sqrt(CRITICAL * FIXED * n / EACH)
    return float(steps(best) * (FIXED + EACH * best / n))


def test_the_best_batch_size_and_its_time_are_those_of_calculus() -> None:
    model = Modelled(seconds_per_example=EACH, seconds_per_step=FIXED)
    made = plan_of(plain_curve(SIZES, steps(SIZES)), model, [1, 4, 16], price=2.0)
    for choice in made.choices:
        n = choice.devices
        assert choice.seconds.value == pytest.approx(times(n), rel=0.03)
        assert choice.batch_size == pytest.approx(math.sqrt(CRITICAL * FIXED * n / EACH), rel=0.6)
        assert choice.seconds.holds(times(n))
        assert choice.cost is not None
        assert choice.cost.value == pytest.approx((choice.seconds.value or 0) * n * 2 / 3600)
    first, second, _ = made.choices
    assert first.saves is None
    assert second.saves is not None
    assert second.saves.value == pytest.approx(1 - times(4) / times(1), abs=0.03)
    assert second.saves.holds(1 - times(4) / times(1))


def test_intervals_hold_the_true_time_about_as_often_as_they_say() -> None:
    """Steps scatter by 5 %, and each step time is measured three times with 3 %."""
    held, tables = 0, 60
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        seen = steps(SIZES) * np.exp(rng.normal(0, 0.05, len(SIZES)))
        rows = [
            {"devices": 8, "batch_size": size, "seconds": taken * math.exp(rng.normal(0, 0.03))}
            for size in SIZES[3:]
            for taken in [FIXED + EACH * size / 8] * 3
        ]
        (choice,) = plan_of(plain_curve(SIZES, seen), step_time(rows, {}), [8]).choices
        size = choice.batch_size
        truth = float(steps(size)) * (FIXED + EACH * size / 8)
        held += choice.seconds.holds(truth)
    assert held / tables >= 0.85


@pytest.mark.parametrize("repeats", [(2, 2), (3, 3), (5, 5), (3, 1)])
def test_few_repeats_have_the_interval_that_they_say(repeats: tuple[int, int]) -> None:
    """Of what is saved at one batch size, where the steps cancel; a place measured once scatters
    as the others do."""
    rng, curve = np.random.default_rng(1), plain_curve(SIZES, steps(SIZES))
    fit, held, tables = [regimes(curve)], 0, 600
    for _ in range(tables):
        rows = [
            {"devices": n, "batch_size": 64, "seconds": math.exp(rng.normal(0, 0.03)) / n}
            for n, times in zip((8, 16), repeats, strict=True)
            for _ in range(times)
        ]
        (made,) = plans([curve], fit, step_time(rows, {}), [8, 16])
        assert made.choices[1].saves is not None
        held += made.choices[1].saves.holds(0.5)
    assert 0.87 <= held / tables <= 0.93


@pytest.mark.parametrize("fixed", [0.0, FIXED])
def test_no_batch_size_between_the_tested_ones_is_quicker(fixed: float) -> None:
    """Of all whole ones, for any number of devices: a device takes the rounded share."""
    sizes = SIZES[3:11]
    curve, seen = plain_curve(sizes, 500 * (1 + 30 / sizes)), np.arange(sizes[0], sizes[-1] + 1)
    located = regimes(curve).located
    rows = [{"devices": 1, "batch_size": b, "seconds": fixed + EACH * b} for b in sizes]
    exact = Modelled(seconds_per_example=EACH, seconds_per_step=fixed)
    for model in (exact, step_time(rows, {"latency": 0})):
        for choice in plan_of(curve, model, [1, 3, 7, 8, 16, 24, 36, 37, 48, 96, 333, 700]).choices:
            steps_of = np.exp([located.fits.best.log_steps(math.log(b)) for b in seen])
            every = steps_of * model.seconds("sgd", choice.devices, seen)[0]
            assert choice.batch_size == seen[np.nanargmin(every)]
            assert choice.is_bound or choice.seconds.value == pytest.approx(np.nanmin(every))
            # The next smaller share was not tested, and the curve is not level there.
            share = math.ceil(choice.batch_size / choice.devices)
            assert choice.is_bound == (1 < share == math.ceil(sizes[0] / choice.devices))


@pytest.mark.parametrize("devices", [2, 3])
def test_the_last_share_of_a_curve_that_still_falls_is_its_end(devices: int) -> None:
    sizes = SIZES[:6]
    model = Modelled(seconds_per_example=EACH, seconds_per_step=5 * EACH)
    (choice,) = plan_of(plain_curve(sizes, steps(sizes)), model, [devices]).choices
    assert choice.batch_size == 32 // devices * devices
    assert choice.is_bound


def test_no_batch_size_below_one_example_may_be_better() -> None:
    """The curve is not level there, and the rest of a step is free."""
    curve = plain_curve(SIZES[:6], 100 * (1 + 1 / SIZES[:6]))
    rows = [{"devices": 1, "batch_size": size, "seconds": EACH * size} for size in SIZES[:6]]
    assert not regimes(curve).located.small_level
    for model in (Modelled(seconds_per_example=EACH), step_time(rows, {})):
        (choice,) = plan_of(curve, model, [1]).choices
        assert choice.batch_size == 1
        assert not choice.is_bound


def test_a_curve_of_another_form_is_read_as_well() -> None:
    """Two straight lines, which no knee has: perfect scaling up to 64, and then none."""
    curve = plain_curve(SIZES, 100 * np.maximum(64 / SIZES, 1))
    model = Modelled(seconds_per_example=EACH, seconds_per_step=FIXED)
    for choice in plan_of(curve, model, [1, 64]).choices:
        assert choice.batch_size == pytest.approx(64, rel=0.1)
        assert choice.seconds.holds(100 * (FIXED + EACH * 64 / choice.devices))


def test_more_devices_than_pay() -> None:
    model = Modelled(
        seconds_per_example=EACH, gradient_bytes=1e8, bandwidth=1e10, latency=1e-4, overlap=0.5
    )
    made = plan_of(plain_curve(SIZES, steps(SIZES)), model, [2**n for n in range(11)])
    every = [choice.seconds.value or math.inf for choice in made.choices]
    quickest = min(every)
    first = next(c.devices for c in made.choices if (c.seconds.value or 1e9) <= quickest * 1.05)
    assert made.enough.value == first
    assert every[-1] > quickest
    # The same without a smart algorithm.
    costs = [each * choice.devices for each, choice in zip(every, made.choices, strict=True)]
    pairs = [*zip(every, costs, strict=True)]
    on = [not any(a <= t and b <= c and (a, b) != (t, c) for a, b in pairs) for t, c in pairs]
    assert [choice.frontier for choice in made.choices] == on


def test_ends_that_are_not_level_are_bounds() -> None:
    sizes = SIZES[:6]  # perfect scaling throughout
    model = Modelled(seconds_per_example=1e-9, seconds_per_step=1.0)
    made = plan_of(plain_curve(sizes, steps(sizes)), model, [1, 2])
    assert all(choice.is_bound for choice in made.choices)
    assert made.choices[0].seconds.high is not None
    assert made.choices[1].saves is not None
    assert made.choices[1].saves.is_open
    assert made.enough.value is None
    assert made.enough.low == 1
    assert "best_at_end" in [note.code for note in made.notes]


@pytest.mark.parametrize(("of_32", "least"), [(0.299, 16), (0.27, 32)])
def test_a_time_that_is_a_bound_is_not_beaten(of_32: float, least: int) -> None:
    """64 devices take at most 0.295 s, at a batch size beyond which the curve still falls."""
    curve = plain_curve(SIZES[:11], steps(SIZES[:11]))
    rows = [
        {"devices": n, "batch_size": size, "seconds": taken / float(steps(size))}
        for n, size, taken in ((16, 64, 0.3), (32, 64, of_32), (64, 1024, 0.26))
    ]
    made = plan_of(curve, step_time(rows, {}), [16, 32, 64])
    assert [choice.is_bound for choice in made.choices] == [False, False, True]
    assert made.choices[-1].seconds.high == pytest.approx(0.295, abs=0.002)
    assert made.enough == Interval(low=least)
    assert made.choices[-1].frontier
    # A bound before them says nothing of those with more devices.
    rows[2] = {"devices": 8, "batch_size": 1024, "seconds": 0.01}
    made = plan_of(curve, step_time(rows, {}), [8, 16, 32])
    assert made.choices[0].is_bound
    assert made.enough.value == (16 if least == 16 else None)


def test_what_is_measured_and_what_lies_between() -> None:
    rows = [
        {"devices": 1, "batch_size": 8, "seconds": 1.0},
        {"devices": 1, "batch_size": 16, "seconds": 1.5},
        {"devices": 2, "batch_size": 16, "seconds": 0.9},
        {"devices": 2, "batch_size": 16, "seconds": 0.8},
    ]
    measured = Measured.of(pd.DataFrame(rows))
    seconds, errors = measured.seconds("sgd", 1, np.array([4.0, 8.0, 12.0, 16.0, 17.0]))
    np.testing.assert_allclose(seconds, [np.nan, 1.0, 1.25, 1.5, np.nan])
    logs = np.log([0.9, 0.8])
    once = logs.std(ddof=1)
    np.testing.assert_allclose(errors, [np.nan, once, once, once, np.nan])
    seconds, errors = measured.seconds("sgd", 2, np.array([16.0]))
    assert seconds[0] == pytest.approx(math.exp(logs.mean()))
    assert errors[0] == pytest.approx(once / math.sqrt(2))
    # Where it was measured twice, once at the neighbours says nothing of it.
    again = Measured.of(pd.DataFrame([*rows, {"devices": 2, "batch_size": 8, "seconds": 0.7}]))
    _, errors = again.seconds("sgd", 2, np.array([8.0, 12.0, 16.0]))
    assert errors[[0, 2]] == pytest.approx([once, once / math.sqrt(2)])
    assert errors[2] < errors[1] < errors[0]
    assert np.isnan(measured.seconds("sgd", 3, np.array([16.0]))[0]).all()
    made = plan_of(plain_curve(SIZES, steps(SIZES)), measured, [1, 2, 3])
    assert [choice.devices for choice in made.choices] == [1, 2]
    assert [note.values for note in made.notes if note.code == "no_step_time"] == [{"devices": "3"}]


def test_the_best_of_measured_batch_sizes_may_lie_beyond_them() -> None:
    """Where several were measured; of a single one the time is asked at it."""
    curve = plain_curve(SIZES, steps(SIZES))

    def time_with(*sizes: float) -> Any:
        rows = [{"devices": 1, "batch_size": b, "seconds": FIXED + EACH * b} for b in sizes]
        (choice,) = plan_of(curve, step_time(rows, {}), [1]).choices
        return choice

    # The best is at about 23.
    for outside, at in (((64, 128, 512), 64), ((1, 2, 8), 8), ((0.5, 1), 1), ((4096, 8192), 4096)):
        choice = time_with(*outside)
        assert choice.batch_size == at
        assert choice.is_bound
        assert choice.seconds.high >= times(1)
    assert not time_with(8, 16, 64).is_bound
    alone = time_with(64)
    assert not alone.is_bound
    assert alone.seconds.holds(float(steps(64)) * (FIXED + EACH * 64))


def test_step_times_of_one_curve_alone() -> None:
    rows = [
        {"devices": 4, "batch_size": size, "seconds": seconds, "curve": curve}
        for size in (16, 4096)
        for curve, seconds in (("muon", 2.0), (None, 1.0))
    ]
    measured = Measured.of(pd.DataFrame(rows))
    assert measured.seconds("muon", 4, np.array([64.0]))[0][0] == 2.0
    assert measured.seconds("sgd", 4, np.array([64.0]))[0][0] == 1.0
    curves = [
        plain_curve(SIZES, steps(SIZES) * factor, label=name, group={"optimizer": name})
        for name, factor in (("sgd", 1.0), ("muon", 0.9))
    ]
    made = plans(curves, [regimes(each) for each in curves], measured, [4])
    (winner,) = winners(made)
    assert (winner.devices, winner.curve, winner.significant) == (4, "sgd", True)


def test_step_times_of_an_unknown_curve_are_refused_where_a_curve_has_none() -> None:
    rows = [
        {"devices": 1, "batch_size": size, "seconds": 0.1 * size, "curve": curve}
        for size in (1, 2, 4)
        for curve in ("SGD", "adam")
    ]
    for model in ({}, {"latency": 1e-6}):
        times = step_time(rows, model)
        with pytest.raises(ResultsError, match="of a curve 'SGD', which is not among") as refused:
            times.check(["adam", "sgd"])
        assert refused.value.hint == "the column curve has labels: adam, sgd"
        times.check(["adam"])  # of a source narrowed
        times.check(["adam", "SGD"])
    step_time([*rows, {**rows[0], "curve": None}], {}).check(["adam", "sgd"])
    Modelled(seconds_per_example=1.0).check(["sgd"])


def test_steps_that_are_no_time_are_refused() -> None:
    grown = BatchPhases.of('{"starts": [0, 40], "sizes": [8, 32], "schedule_steps": 400}')
    plain, model = plain_curve(SIZES, steps(SIZES)), Modelled(seconds_per_example=EACH)
    points = tuple(replace(point, phases=grown) for point in plain.points)
    for curve, why in (
        (plain_curve(SIZES, steps(SIZES) / 1e3), "in a unit of the source's"),
        (replace(plain, points=points), "the batch size grows during training"),
        (replace(plain, notes=(Note("met_at_start", at=[8]),)), "met before the first step"),
    ):
        with pytest.raises(ResultsError, match=f"sgd: its time is not known: .*{why}"):
            plan_of(curve, model, [1])


@pytest.mark.parametrize("given", [{}, {"gradient_bytes": 1e8, "bandwidth": 1e10}])
def test_a_step_of_several_gradients_takes_the_compute_and_the_bytes_of_each(given: Any) -> None:
    """A model's; the compute of a fitted one was measured with them."""
    plain, note = plain_curve(SIZES, steps(SIZES)), Note("gradients", steps="", n=2, unit="image")
    rows = [{"devices": 1, "batch_size": b, "seconds": FIXED + 2 * EACH * b} for b in SIZES[::4]]
    twice = Modelled(seconds_per_example=2 * EACH, seconds_per_step=FIXED, latency=2e-4,
                     **{**given, **({"gradient_bytes": 2e8} if given else {})})  # fmt: skip
    model = replace(twice, seconds_per_example=EACH, latency=1e-4, **given)
    expected = plan_of(plain, twice, [1, 4, 64]).choices
    for times in (model, step_time(rows, {"latency": 1e-4, **given})):
        made = plan_of(replace(plain, notes=(note,)), times, [1, 4, 64])
        assert note in made.notes
        for choice, other in zip(made.choices, expected, strict=True):
            assert choice.batch_size == other.batch_size
            assert choice.seconds.value == pytest.approx(other.seconds.value)


def test_the_ring_sends_what_the_paper_says() -> None:
    model = Modelled(seconds_per_example=0.01, gradient_bytes=1e9, bandwidth=1e10, latency=1e-3)
    seconds, _ = model.seconds("", 4, np.array([2.0, 8.0]))
    assert np.isnan(seconds[0])  # a device without an example
    assert seconds[1] == pytest.approx(0.02 + 2 * 3 / 4 * 0.1 + 2 * 3 * 1e-3)
    hidden = Modelled(seconds_per_example=0.1, gradient_bytes=1e9, bandwidth=1e10, overlap=0.6)
    assert hidden.seconds("", 4, np.array([8.0]))[0][0] == pytest.approx(0.2 + 0.15 - 0.12)


def test_a_model_is_fitted_to_one_device_and_compared_with_several() -> None:
    rows = [{"devices": 1, "batch_size": size, "seconds": FIXED + EACH * size} for size in SIZES]
    rows += [{"devices": 2, "batch_size": 8, "seconds": 2 * (FIXED + EACH * 4 + 0.1)}]
    rows += [{"devices": 32, "batch_size": 8, "seconds": 1.0}]  # the model needs an example each
    communication = {"gradient_bytes": 1e9, "bandwidth": 1e10}
    fitted = step_time(rows, communication)
    exact = Modelled(seconds_per_example=EACH, seconds_per_step=FIXED, **communication)
    sizes = np.array(SIZES, dtype=np.float64)
    for n in (1, 2, 64):
        made, errors = fitted.seconds("", n, sizes)
        np.testing.assert_allclose(made, exact.seconds("", n, sizes)[0], rtol=1e-9)
        assert np.nanmax(errors) < 1e-9
    assert [str(note) for note in fitted.notes("")] == [
        "step times are a model's, fitted to those measured on one device: 0.001 s an example, "
        "0.004 s a step; they lie 0% off it",
        "on 2 devices the model takes 0.50 to 0.50 times what was measured there",
    ]


def test_a_fitted_model_is_less_sure_of_shares_that_are_smaller_than_those_measured() -> None:
    """At one example a device most of a step is what it takes besides, of 64 or more little is."""
    held, tables = 0, 300
    for seed in range(tables):
        scatter = np.exp(np.random.default_rng(seed).normal(0, 0.05, 5))
        taken = (FIXED + EACH * SIZES[6:11]) * scatter
        rows = pd.DataFrame({"devices": 1, "batch_size": SIZES[6:11], "seconds": taken})
        fitted = step_time(rows, {"latency": 1e-4})
        (seconds,), (error,) = fitted.seconds("", 8, np.array([8.0]))
        off = abs(math.log(seconds / (FIXED + EACH + 14e-4)))
        held += off <= stdtrit(fitted.freedom, 0.95) * error
    assert 0.86 <= held / tables <= 0.94


def test_what_a_fitted_model_leaves_is_part_of_the_interval() -> None:
    curve = plain_curve(SIZES, steps(SIZES))
    scatter = np.where(np.arange(len(SIZES)) % 2, 1.1, 1 / 1.1)
    seconds = (FIXED + EACH * SIZES) * scatter
    rows = [
        {"devices": 1, "batch_size": b, "seconds": t} for b, t in zip(SIZES, seconds, strict=True)
    ]
    fitted = step_time(rows, {"latency": 1e-6})
    assert fitted.seconds("", 4, np.array([16.0]))[1] == pytest.approx(0.1, rel=0.2)
    assert fitted.freedom == len(SIZES) - 2
    (note,) = plan_of(curve, fitted, [1, 4]).notes
    assert note.code == "fitted_step_time"
    flat = [{"devices": 1, "batch_size": size, "seconds": 1 / size} for size in SIZES]
    for wrong, message in ((flat, "do not grow"), (rows[:2], "too few step times"), (
        [{**rows[0], "devices": 2}], "no step time of one device"
    )):  # fmt: skip
        with pytest.raises(ResultsError, match=message):
            step_time(wrong, {"latency": 1e-6})


@pytest.mark.parametrize(
    ("measured", "model", "message"),
    [
        (None, {}, "the seconds of a step are needed"),
        ([], ONE, "two kinds of step times"),
        (None, {"latency": 1.0}, "a model of step times needs the seconds of an example"),
        (None, {"seconds_per_example": -1.0}, "seconds per example is -1, which cannot be"),
        (None, {**ONE, "overlap": 2.0}, "overlap is 2, which cannot be"),
        (None, {"seconds_per_example": math.inf}, "seconds per example is inf, which cannot be"),
        (None, {**ONE, "gradient_bytes": 1.0}, "take no time without the bandw"),
        (pd.DataFrame({"devices": [], "batch_size": [], "seconds": []}), {}, "has no rows"),
        ([{"devices": 1, "seconds": 1}], {}, "has no column 'batch_size'"),
        ([{"devices": 1, "batch_size": 8, "seconds": 0}], {}, "row 1: seconds is '0', no positive"),
        ([{"devices": 1.5, "batch_size": 8, "seconds": 1}], {}, "is '1.5', no positive whole"),
        ("nothing.csv", {}, "cannot read nothing.csv: No such file"),
    ],
)
def test_step_times_that_cannot_be(measured: Any, model: dict[str, float], message: str) -> None:
    with pytest.raises(ResultsError, match=message):
        step_time(measured, model)
