"""The law of optimal batch sizes: noise that changes with the budget, flat minima, intervals."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.fit.budgets import law, parabolas
from analysis.fit.optimal_batch import optimal_batch
from validation.page import kept
from validation.scenarios import BY_NAME

SIZES = np.log(2.0) * np.arange(4, 12)
BUDGETS = np.log(2.0) * np.arange(18, 25)
VERTICES = SIZES.mean() + 0.4 * (BUDGETS - BUDGETS.mean())


def losses(deviations: np.ndarray, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parabolas of curvature 1, with noise."""
    rng = np.random.default_rng(seed)
    return [
        (SIZES, np.square(SIZES - vertex) + deviation * rng.normal(size=len(SIZES)))
        for vertex, deviation in zip(VERTICES, deviations, strict=True)
    ]


def final(deviations: np.ndarray, seed: int = 0, vertices: np.ndarray = VERTICES) -> FinalLosses:
    rng = np.random.default_rng(seed)
    points = [
        FinalLoss(
            batch_size=round(np.exp(size)), budget=float(np.exp(budget)),
            examples=float(np.exp(budget)), configurations=1,
            value=float(3 + (size - vertex) ** 2 + deviation * rng.normal()),
        )
        for budget, vertex, deviation in zip(BUDGETS, vertices, deviations, strict=True)
        for size in SIZES
    ]  # fmt: skip
    return FinalLosses(
        group={}, label="made", metric="loss", lower_is_better=True, points=tuple(points)
    )


def test_the_noise_is_a_power_of_the_budget() -> None:
    """Of many seeds, the geometric mean of the fitted variances is the true one at each budget."""
    true = 0.3 * np.exp(-0.3 * (BUDGETS - BUDGETS.mean()))
    logs = []
    for seed in range(60):
        fits = [parabolas.parabola_at(*each, v) for each, v in
                zip(losses(true, seed), VERTICES, strict=True)]  # fmt: skip
        made = parabolas.noises(BUDGETS, fits)
        logs.append([np.log(each.variance) for each in made])
        spare = sum(fit.spare for fit in fits)
        freedom = [each.freedom for each in made]
        assert max(freedom) < spare + 1e-9
        assert freedom[3] > freedom[0]  # the middle is known best
    # The mean of a log variance of few degrees of freedom lies below the log of its mean: by one
    # over them.
    below = [1 / of_it for of_it in freedom]
    assert np.mean(logs, 0) + below == pytest.approx(2 * np.log(true), abs=0.25)


def test_noise_of_few_points_is_that_of_all() -> None:
    fits = [parabolas.parabola_at(SIZES[:4], each[1][:4], SIZES[1]) for each in
            losses(np.full(7, 0.1))[:2]]  # fmt: skip
    first, second = parabolas.noises(BUDGETS[:2], fits)
    assert first == second == parabolas.pooled(fits)
    none = [parabolas.parabola_at(SIZES[:3], np.array([2.0, 1, 2]), SIZES[1])]
    assert np.isnan(parabolas.noises(BUDGETS[:1], none)[0].variance)


def test_ends_of_the_law_are_where_the_least_statistic_rises_to_the_quantile() -> None:
    """Against another optimizer over the free parameter, on a fine grid."""
    made = losses(np.full(7, 0.3), 3)
    fits = [parabolas.parabola(*each) for each in made]
    fitted = law.line(BUDGETS, made, fits, level=0.9)
    assert fitted is not None
    about = fitted.height + fitted.slope * (BUDGETS - fitted.middle)
    q = law._Statistic(BUDGETS, [parabolas.parabola_at(*each, v) for each, v in
                                 zip(made, about, strict=True)])  # fmt: skip
    q.middle = fitted.middle
    heights = np.linspace(fitted.height - 2, fitted.height + 2, 4001)

    def least(slope: float) -> float:
        roots = q.roots(heights, np.full(len(heights), slope), fitted.scatter)
        return float(np.square(roots).sum(-1).min())

    goal = least(fitted.slope) + law._student(5, 0.9) ** 2
    for end in fitted.slope_ends:
        assert least(end) == pytest.approx(goal, rel=1e-3)
        assert least(end + 0.1 * (end - fitted.slope)) > goal


@pytest.mark.slow
def test_flat_minima_have_a_law_though_none_has_an_interval() -> None:
    """The optima of single budgets are open, all together they give the law."""
    optimal = optimal_batch(final(np.full(7, 2.2), seed=5))
    assert sum(each.batch_size.reached for each in optimal.optima) < 3
    assert optimal.exponent.reached
    assert optimal.exponent.holds(0.4)
    assert len(optimal.counted) >= 3
    assert any("too flat" in note for note in optimal.notes)
    plain = optimal.to_dict()
    assert plain["law_budgets"] == list(optimal.counted)
    assert all(each["noise"] > 0 for each in plain["optima"])


def test_no_minimum_gives_no_law() -> None:
    optimal = optimal_batch(final(np.full(7, 60.0), seed=1))
    assert optimal.exponent.value is None
    assert optimal.line is None
    assert any("no interval" in note or "a law needs" in note for note in optimal.notes)


def test_budgets_whose_optimum_lies_outside_are_left_out() -> None:
    vertices = SIZES.mean() + 2.5 * (BUDGETS - BUDGETS.mean())
    optimal = optimal_batch(final(np.full(7, 0.1), vertices=vertices))
    half = np.log(2.0) / 2  # nearer to the edge it is the best
    inside = [v for v in vertices if SIZES[0] + half < v < SIZES[-1] - half]
    assert len(optimal.counted) == len(inside) < 7
    assert optimal.exponent.holds(2.5)
    assert any("lies outside of the tested batch sizes" in note for note in optimal.notes)


def test_off_the_law_the_intervals_are_wider() -> None:
    away = np.array([0.3, -0.4, 0.2, 0.3, -0.5, 0.3, -0.2])
    on, off = (
        optimal_batch(final(np.full(7, 0.05), vertices=VERTICES + each)) for each in (0, away)
    )
    assert on.scatter == pytest.approx(0, abs=0.03)
    assert off.scatter == pytest.approx(away.std(ddof=2), rel=0.15)
    widths = [(each.exponent.high or 0) - (each.exponent.low or 0) for each in (on, off)]
    assert widths[1] > 5 * widths[0]


def test_simulated_laws_cover() -> None:
    frame = kept("budgets")
    clear = frame[frame["noise"] < 1].sum(numeric_only=True)
    assert clear["with_law"] >= 0.97 * clear["laws"]
    assert 0.85 <= clear["exponent"] / clear["with_law"] <= 0.98
    assert 0.85 <= frame["optima_covered"].sum() / frame["optima"].sum() <= 0.95


def test_a_block_of_the_table_is_analysed_like_a_file() -> None:
    simulated = BY_NAME["budgets"]
    row = simulated.row(simulated.cells[0], replicates=4)
    assert row["with_law"] == row["laws"] == 4
    assert row["optima"] == 4 * 7  # budgets
