"""Forms of a curve: each is told from the others where it can be, whatever the units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fit import forms as f
from analysis.fit.knee import log_steps, theta
from analysis.fit.least_squares import Data

X = np.log(2.0 ** np.arange(0, 14))


def data(y: np.ndarray, x: np.ndarray = X) -> Data:
    return Data(
        x=x[None],
        y=y[None],
        weight=np.ones((1, len(x))),
        bent=np.array([True]),
        sloped=np.array([False]),
        tolerance=0.2,
    )


def segments(until: float, onward: float, slope: float, least: float = 50.0) -> np.ndarray:
    """By hand: the three pieces in turn."""
    y = np.empty_like(X)
    a, b = np.log(until), np.log(onward)
    for i, x in enumerate(X):
        if x >= b:
            y[i] = np.log(least)
        elif x >= a:
            y[i] = np.log(least) + slope * (b - x)
        else:
            y[i] = np.log(least) + slope * (b - a) + (a - x)
    return y


TRUE = {
    f.PERFECT: 12.0 - X,
    f.PLATEAU: np.full_like(X, 5.0),
    f.SEGMENTS: segments(8, 2048, 0.5),
    f.SINGLE: log_steps(X, theta(50, 64)),
    f.BENT: log_steps(X, theta(50, 64, bend=3.5)),
    f.SLOPED: log_steps(X, theta(50, 64, bend=1.5, slope=0.7)),
}


@pytest.mark.parametrize("name", TRUE)
def test_an_exact_curve_has_its_own_form(name: str) -> None:
    best, *others = f.forms(data(TRUE[name]))
    assert best.name == name
    assert best.weight > 0.7
    assert best.fits
    assert best.weight + sum(form.weight for form in others) == pytest.approx(1)
    assert {form.name for form in (best, *others)} == set(TRUE)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUE)
def test_with_five_percent_of_noise_it_is_found_more_often_than_any_other(name: str) -> None:
    draw = np.random.default_rng(3)
    counts: dict[str, int] = {}
    for _ in range(60):
        noisy = TRUE[name] + 0.05 * draw.normal(size=len(X))
        won = f.forms(data(noisy))[0].name
        counts[won] = counts.get(won, 0) + 1
    assert counts.get(name, 0) >= 42


def test_the_pieces_of_three_segments_are_where_they_were_put() -> None:
    (found,) = (form for form in f.forms(data(TRUE[f.SEGMENTS])) if form.name == f.SEGMENTS)
    assert found.where["perfect_scaling_until"] == pytest.approx(8, rel=0.02)
    assert found.where["maximal_parallelism_from"] == pytest.approx(2048, rel=0.02)
    assert found.where["slope"] == pytest.approx(0.5, abs=0.005)
    assert found.where["min_steps"] == pytest.approx(50, rel=0.01)


@pytest.mark.slow
def test_three_segments_are_the_best_of_a_dense_search() -> None:
    """A slow twin: every pair of a fine grid, each fitted by numpy's own least squares."""
    draw = np.random.default_rng(5)
    for true in (segments(20, 900, 0.3), log_steps(X, theta(80, 100, bend=0.6))):
        y = true + 0.1 * draw.normal(size=len(X))
        (found,) = (form for form in f.forms(data(y)) if form.name == f.SEGMENTS)
        least = np.inf
        grid = np.linspace(X[0], X[-1], 140)
        for i, a in enumerate(grid):
            for b in grid[i:]:
                run = b - np.clip(X, a, b)
                rest = y - np.maximum(a - X, 0)
                for design in (np.stack([np.ones_like(X), run], 1), np.ones((len(X), 1))):
                    solved, *_ = np.linalg.lstsq(design, rest, rcond=None)
                    if len(solved) == 1 or 0 <= solved[1] <= 1:
                        least = min(least, float(np.square(rest - design @ solved).sum()))
        assert found.noise**2 * (len(X) - 4) <= least * 1.01


@pytest.mark.slow
@given(
    seed=st.integers(0, 1000), batch=st.floats(-3, 3), steps=st.floats(-3, 3),
    name=st.sampled_from(sorted(TRUE)),
)  # fmt: skip
def test_units_change_no_choice(seed: int, batch: float, steps: float, name: str) -> None:
    y = TRUE[name] + 0.05 * np.random.default_rng(seed).normal(size=len(X))
    one = f.forms(data(y))
    other = f.forms(data(y + steps, X + batch))
    by_name = {form.name: form.criterion for form in other}
    for form in one:
        assert by_name[form.name] == pytest.approx(form.criterion, abs=0.3)


def test_a_curve_that_nothing_fits_says_so() -> None:
    y = np.where(np.arange(len(X)) % 2 == 0, 6.0, 8.0)
    assert not any(form.fits for form in f.forms(data(y)))


def test_runs_are_not_batch_sizes() -> None:
    """Ten runs at each of four batch sizes cannot tell a form of four parameters."""
    draw = np.random.default_rng(0)
    x = np.repeat(X[:8:2], 10)
    y = np.interp(x, X, TRUE[f.SEGMENTS]) + 0.05 * draw.normal(size=len(x))
    able = {form.parameters for form in f.forms(data(y, x)) if np.isfinite(form.criterion)}
    assert able == {1, 2, 3}


def test_a_note_is_made_of_another_form_that_is_surely_better() -> None:
    said = f.sentence(f.forms(data(TRUE[f.SEGMENTS])))
    assert said is not None
    assert said.startswith("three segments fit better than a knee (weight 1.00): they meet at 8 ")
    assert f.sentence(f.forms(data(TRUE[f.BENT]))) is None
    apart = f.forms(data(np.where(np.arange(len(X)) % 2 == 0, 6.0, 8.0)))
    assert str(f.sentence(apart)).startswith("no form fits: the points scatter by ")
