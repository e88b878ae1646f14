"""A small-batch penalty: a minimum of examples to target, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.text import Text

from analysis import Curve, figures, regimes
from analysis.fit import locate
from analysis.fit.interval import Interval, bounded
from analysis.fit.knee import log_steps, theta
from analysis.fit.reference_lines import perfect_examples, regime_spans
from batchscale.output import regime_table
from tests.analysis.legible import faults, figure_of
from tests.marks import quick

Plain = Callable[..., Curve]
SIZES = [2**i for i in range(3, 13)]
FLAT = theta(900, 700, 1.2)
STEEP = theta(900, 700, 1.2, 1.3)


def curve(plain: Plain, params: np.ndarray, noise: float = 0.03, **columns: object) -> Curve:
    rng = np.random.default_rng(11)
    steps = np.exp(log_steps(np.log(SIZES), params) + rng.normal(0, noise, len(SIZES)))
    return plain(SIZES, steps, **columns)


def least(params: np.ndarray) -> tuple[float, float]:
    """The batch size of fewest examples of a knee, and log examples there."""
    at = np.linspace(np.log(SIZES[0]), np.log(SIZES[-1]), 100_001)
    examples = at + log_steps(at, params)
    return float(np.exp(at[examples.argmin()])), float(examples.min())


def test_a_curve_with_a_penalty(plain_curve: Plain) -> None:
    answer = regimes(curve(plain_curve, STEEP))
    best, (true, fewest) = answer.best_batch_size, least(STEEP)
    assert best is not None
    assert best.reached
    assert best.value is not None
    assert best.holds(true)
    first = np.log(8) + log_steps(np.log([8.0]), STEEP)[0]
    assert answer.small_batch_penalty == pytest.approx(np.exp(first - fewest), rel=0.1)
    (note,) = [note for note in answer.notes if note.code == "penalty"]
    assert f"batch size 8 needs {answer.small_batch_penalty:.2f} times the fewest" in note
    assert answer.best["form"] == "knee with a slope of its own"
    # Perfect scaling is measured from there, and the small end is what lies before it.
    assert answer.small_level
    perfect, examples = answer.perfect_scaling_until, answer.min_examples
    assert perfect.value is not None
    assert best.value < perfect.value
    assert examples.holds(np.exp(fewest))
    critical = answer.located.tested("critical_batch_size", 0.9)
    assert critical[1] < fewest - log_steps(np.log(SIZES[-1:]), STEEP)[0] < critical[2]
    assert perfect_examples(curve(plain_curve, STEEP), answer) == examples.value
    assert regime_spans(answer)[0].low == best.value


def test_a_penalty_without_noise_is_located_between_batch_sizes(plain_curve: Plain) -> None:
    best = regimes(curve(plain_curve, STEEP, noise=0.0)).best_batch_size
    assert best is not None
    assert best.value == pytest.approx(least(STEEP)[0], rel=0.4)


@pytest.mark.parametrize(
    "params", [FLAT, theta(900, 700, 1.2, 0.8), theta(900, 4, 3.0)], ids=["flat", "slow", "plateau"]
)
def test_a_monotone_curve_has_none(plain_curve: Plain, params: np.ndarray) -> None:
    answer = regimes(curve(plain_curve, params))
    assert answer.best_batch_size is None
    assert answer.small_batch_penalty is None
    plain = answer.to_dict()
    assert plain["best_batch_size"] == {"value": None, "low": None, "high": None}
    assert plain["small_batch_penalty"] is None


def test_four_batch_sizes_are_too_few_for_the_test(plain_curve: Plain) -> None:
    steps = np.exp(log_steps(np.log(SIZES[:5]), theta(900, 40, 1.2, 1.8)))
    assert regimes(plain_curve(SIZES[:4], steps[:4])).best_batch_size is None
    assert regimes(plain_curve(SIZES[:5], steps)).best_batch_size is not None


def test_a_penalty_of_a_few_per_cent_is_none(
    plain_curve: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However sure it is."""
    factor = regimes(curve(plain_curve, STEEP)).small_batch_penalty
    assert factor is not None
    monkeypatch.setattr(locate, "LEAST_PENALTY", factor + 0.01)
    found = regimes(curve(plain_curve, STEEP))
    assert found.located.fits.best.family.low == -2
    assert found.small_batch_penalty is None
    assert found.best_batch_size is None


def test_the_minimum_at_the_largest_batch_size_is_bounded(plain_curve: Plain) -> None:
    best = regimes(curve(plain_curve, theta(9, 1e6, 1.2, 1.3))).best_batch_size
    assert best is not None
    assert best.high is None
    assert best.low is not None
    assert best.low > 500


def test_bounds_at_both_edges() -> None:
    tested = np.array([1.0, 4.0, 16.0, 64.0])
    near = Interval(value=1.5, low=1.2, high=2.0)
    falling, rising = 1 / tested**2, np.ones(4)
    assert bounded(near, tested, rising) == Interval(high=4.0)
    assert bounded(Interval(value=1.5, high=9.0), tested, rising) == Interval(high=9.0)
    assert bounded(Interval(value=1.5), tested, rising) == Interval()
    assert bounded(Interval(value=40.0, low=30.0), tested, falling) == Interval(low=16.0)
    assert bounded(Interval(low=8.0), tested, falling) == Interval(low=8.0)
    assert bounded(near, tested, np.array([9.0, 2.0, 1.0, 1.0])) == near


@pytest.mark.slow
def test_the_table_has_the_column_only_where_a_curve_has_a_penalty(plain_curve: Plain) -> None:
    with_penalty = regimes(curve(plain_curve, STEEP, group={"optimizer": "adamw"})).to_dict()
    without = regimes(curve(plain_curve, FLAT, group={"optimizer": "muon"})).to_dict()
    table = regime_table.regimes([with_penalty, without], "table")
    assert "best batch size" in table
    assert "small-batch penalty" in table
    row = next(line for line in table.splitlines() if line.startswith("muon"))
    assert "open" not in row
    assert "best batch size" not in regime_table.regimes([without], "table")
    flat = regime_table.regimes([with_penalty], "csv")
    assert {"best_batch_size_low", "small_batch_penalty"} <= {*flat.splitlines()[0].split(",")}


@pytest.mark.slow
@pytest.mark.usefixtures("closed_figures")
@pytest.mark.parametrize("name", quick(["steps", "tradeoff"], 1))
def test_the_figures_mark_the_fewest_examples(name: str, plain_curve: Plain) -> None:
    def diamonds(params: np.ndarray) -> int:
        ax = figures.draw(name, [curve(plain_curve, params, example_unit="image")])
        figure = figure_of(ax)
        assert faults(figure) == []
        said = " ".join(text.get_text() for text in figure.findobj(Text))
        assert ("fewest images" in said) == (params is STEEP)
        return sum(line.get_marker() == "D" for line in ax.lines)

    assert diamonds(STEEP) == 1
    assert diamonds(FLAT) == 0


@pytest.mark.slow
def test_an_ended_penalty_does_not_move_the_critical_batch_size(plain_curve: Plain) -> None:
    """A knee of 400, of which small batches need more examples again."""
    sizes = np.array([2.0**i for i in range(2, 15)])
    steps = 50 * (1 + 400 / sizes) * (1 + 10 / sizes)
    at = np.geomspace(4, 16384, 100_001)
    true = float((50 * at * (1 + 400 / at) * (1 + 10 / at)).min())
    answer = regimes(
        plain_curve(sizes, steps * np.exp(np.random.default_rng(1).normal(0, 0.03, 13)))
    )
    assert answer.best_batch_size is not None
    _, low, high = answer.located.tested("critical_batch_size", 0.9)
    tested = true / steps[-1]
    assert np.exp(low) < tested < np.exp(high)
    assert np.exp(high - low) < 1.5
