"""Forms at three to eight batch sizes: what is said never contradicts the fit, however few."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.curves.curve import Curve
from analysis.fit import forms as f
from analysis.fit.estimate import fitted
from analysis.fit.knee import Array
from analysis.fit.regimes import regimes
from tests.marks import quick
from validation.simulate import Cell, doubling, draw

FIVE = (544, 305, 207, 207, 188)
"""A knee with a visible plateau; a criterion that is defined for lines alone ranks a line first."""


def compared(x: Array, y: Array) -> tuple[f.Form, ...]:
    """The forms of the curve at log batch sizes ``x`` and log steps ``y`` (n,), as it is fitted."""
    data = fitted(x[None], y[None], np.ones((1, len(x))), tolerance=0.2, level=0.9).data
    return f.forms(data)


def knee(count: int, repeats: int = 1) -> tuple[Array, Array]:
    """An exact knee of bend 1 in the middle of ``count`` doublings, each measured ``repeats``
    times."""
    middle = 2.0 ** ((count - 1) / 2)
    cell = Cell(batch_sizes=doubling(count), critical=middle, noise=1e-3, repeats=repeats)
    x, y = draw(cell, 1, 0)
    return x[0], y[0]


@pytest.mark.parametrize(
    ("count", "repeats", "parameters"),
    [
        (3, 1, None), (3, 2, {1, 2}), (3, 5, {1, 2}),
        (4, 1, None), (4, 2, {1, 2, 3}),
        (5, 1, None), (5, 2, {1, 2, 3, 4}),
        (6, 1, {1, 2, 3}), (6, 2, {1, 2, 3, 4}),
        (7, 1, {1, 2, 3, 4}), (7, 3, {1, 2, 3, 4}),
        (8, 1, {1, 2, 3, 4}), (8, 2, {1, 2, 3, 4}),
    ],
)  # fmt: skip
def test_forms_are_ranked_only_beside_the_knee_that_is_fitted(
    count: int, repeats: int, parameters: set[int] | None
) -> None:
    """``parameters``: of the forms that are ranked; None: too few points to rank any."""
    found = compared(*knee(count, repeats))
    ranked = [form for form in found if not np.isnan(form.weight)]
    assert {form.parameters for form in ranked} == (parameters or set())
    if parameters is None:
        assert f.sentence(found) is None
        assert {form.to_dict()["weight"] for form in found} == {None}
    else:
        assert sum(form.weight for form in ranked) == pytest.approx(1)
        assert found[0].weight == max(form.weight for form in ranked)
        assert all(np.isfinite(form.criterion) for form in ranked)


def test_five_points_of_a_knee_are_not_called_a_plateau(plain_curve: Callable[..., Curve]) -> None:
    answer = regimes(plain_curve([16, 32, 64, 128, 256], FIVE))
    assert not [note for note in answer.notes if "better than a knee" in note]
    assert {form["weight"] for form in answer.to_dict()["forms"]} == {None}


def test_a_line_that_the_intervals_exclude_is_not_better_whatever_its_weight() -> None:
    """At six points the penalty for a bend is worth a factor of 800 in the sum of squares."""
    cell = Cell(batch_sizes=doubling(6), critical=2.0, bend=8.0, noise=0.05)
    x, y = draw(cell, 1, 1)
    best, *_ = found = compared(x[0], y[0])
    assert best.name == f.PLATEAU
    assert best.weight > f.SURE
    assert best.excluded
    assert best.to_dict()["excluded"] is True
    assert f.sentence(found) is None


@pytest.mark.parametrize("name", [f.PLATEAU, f.PERFECT])
@pytest.mark.parametrize("count", [6, 7, 8])
def test_a_line_is_said_to_be_one_from_six_points_on(name: str, count: int) -> None:
    x = np.log(doubling(count))
    noise = np.random.default_rng(2).normal(0, 0.05, count)
    line = np.full(count, 5.0) if name == f.PLATEAU else 9.0 - x
    assert str(f.sentence(compared(x, line + noise))).startswith(f"{name} fits better than a knee")


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("count", range(3, 9))
def test_points_that_no_form_fits_are_named_however_few(count: int, repeats: int) -> None:
    x = np.repeat(np.log(doubling(count)), repeats)
    apart = np.where(np.arange(len(x)) // repeats % 2 == 0, 6.0, 8.0)
    said = str(f.sentence(compared(x, apart)))
    assert said.startswith("no form fits: the points scatter by 1"), said


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("count", range(3, 9))
def test_a_knee_that_fits_is_not_said_to_scatter(count: int, repeats: int) -> None:
    assert "no form fits" not in str(f.sentence(compared(*knee(count, repeats))))


def better(cell: Cell, number: int) -> float:
    """The share of ``number`` curves of which something is said to be better than a knee."""
    x, y = draw(cell, number, seed=7)
    data = fitted(x, y, np.ones_like(x), tolerance=0.2, level=0.9).data
    said = [str(f.sentence(f.forms(data.take(np.array([row]))))) for row in range(number)]
    return float(np.mean(["better than a knee" in text for text in said]))


@pytest.mark.slow
@pytest.mark.parametrize("bend", [0.6, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("count", range(3, 9))
def test_a_curve_that_is_a_knee_is_seldom_said_to_be_something_else(
    count: int, bend: float
) -> None:
    """Of 30 curves a cell: none at 5 % of noise with the knee one doubling from the smallest batch
    size; one at 10 % with the knee in the middle; 30 % at 20 % of noise with the knee one doubling
    from the smallest, where a single point tells it from a plateau."""
    sizes = doubling(count)
    for noise, critical, most in (
        (0.05, 2.0, 0.0), (0.1, 2.0 ** ((count - 1) / 2), 0.05), (0.2, 2.0, 0.3),
    ):  # fmt: skip
        cell = Cell(batch_sizes=sizes, critical=critical, bend=bend, noise=noise)
        assert better(cell, 30) <= (most if count > 5 else 0.0), (noise, critical)


@pytest.mark.slow
@pytest.mark.parametrize("count", quick([3, 4, 5, 6], 1))
def test_runs_that_are_repeated_change_none_of_this(count: int) -> None:
    for bend in (1.0, 8.0):
        middle = 2.0 ** ((count - 1) / 2)
        cell = Cell(batch_sizes=doubling(count), critical=middle, bend=bend, repeats=3)
        assert better(cell, 30) <= 0.1
