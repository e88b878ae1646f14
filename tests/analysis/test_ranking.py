"""Which curve is best at which batch size: claims and crossovers of losses that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import batchscale as bs
from analysis import figures
from analysis.fit.budgets.loss_crossovers import Noise, Place, interpolation, p_value
from analysis.fit.budgets.ranking import ALPHA, Ranking, rankings, significant
from results.errors import ResultsError
from tests.analysis import seeded_losses as made
from tests.analysis.reference import hold


def ranking(curves: Mapping[str, made.Loss], seed: int, **given: object) -> Ranking:
    rng = np.random.default_rng(seed)
    (one,) = rankings(made.finals(curves, rng=rng, **given))  # type: ignore[arg-type]
    return one


def write(frame: pd.DataFrame, folder: Path) -> Path:
    path = folder / "final.csv"
    frame.to_csv(path, index=False)
    return path


def best(answer: dict[str, object]) -> list[tuple[int, str, bool | None]]:
    rows: list[dict[str, object]] = answer["batch_sizes"]  # type: ignore[assignment]
    return [(row["batch_size"], row["best"], row["significant"]) for row in rows]  # type: ignore[misc]


RIGHT = [(2**17, "gamma", True), *((size, "beta", True) for size in made.SIZES[1:])]


def test_optimizers_at_one_budget(tmp_path: Path) -> None:
    (answer,) = bs.best_at_batch(write(made.table(), tmp_path))
    assert best(answer) == RIGHT
    assert answer["budget"] == pytest.approx(made.BUDGET, rel=1e-3)
    assert (answer["unit"], answer["comparisons"]) == ("tokens", 12)
    crossing = {(c["first"], c["second"]): c for c in answer["crossovers"]}
    assert crossing["alpha", "beta"]["at"] == []
    (at,) = crossing["beta", "gamma"]["at"]
    assert at["low"] < made.CROSSING < at["high"]
    assert at["value"] == pytest.approx(made.CROSSING, rel=0.2)
    assert made.SIZES[0] <= at["low"] < at["high"] <= made.SIZES[1]
    assert crossing["beta", "gamma"]["better"] == ["gamma", "beta"]
    for each in answer["best_batch_sizes"].values():
        assert (each["best_tested"], each["low"], each["high"]) == (made.SIZES[0], None, 2**19)
    assert answer["note_codes"] == ["single_budget"]


def accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    loss = frame.pop("validation_loss")
    return frame.assign(accuracy=1 - loss / 5)


def in_examples(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns={"tokens": "examples"})


def fewer_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["seed"] == 0) | frame["optimizer"].ne("beta") | (frame.index % 3 > 0)]


def tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """Learning rates to minimize over, the largest of which fails for one seed."""
    parts = []
    for rate in (1e-3, 2e-3, 4e-3):
        worse = 0.02 * np.log2(rate / 1e-3) ** 2
        part = frame.assign(learning_rate=rate, validation_loss=frame["validation_loss"] + worse)
        if rate == 4e-3:
            part.loc[part["seed"] == 1, "validation_loss"] = np.nan
            part.loc[part["seed"] == 0, "validation_loss"] -= 1.0
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("change", [accuracy, in_examples, fewer_seeds, tuned])
def test_other_tables_of_the_same_runs(
    change: Callable[[pd.DataFrame], pd.DataFrame], tmp_path: Path
) -> None:
    (answer,) = bs.best_at_batch(write(change(made.table(seeds=3)), tmp_path))
    assert best(answer) == RIGHT
    (at,) = answer["crossovers"][2]["at"]
    assert at["low"] < made.CROSSING < at["high"]
    assert ("selected" in answer["note_codes"]) == (change is tuned)
    assert answer["comparisons"] == (24 if change is tuned else 12)


def test_a_missing_cell_and_a_diverged_one(tmp_path: Path) -> None:
    frame = made.table()
    at = frame["batch_size"].eq(2**21) & frame["optimizer"].eq("gamma")
    frame = frame[~(frame["batch_size"].eq(2**20) & frame["optimizer"].eq("beta"))]
    for failure in ("DNF", "nan", "inf", "diverged"):
        column = frame["validation_loss"].astype(object).mask(at & frame["seed"].eq(1), failure)
        (answer,) = bs.best_at_batch(write(frame.assign(validation_loss=column), tmp_path))
        assert best(answer)[2:] == [(2**20, "gamma", True), (2**21, "beta", True)]
        last = answer["batch_sizes"][3]["curves"][2]
        assert (last["curve"], last["failed"], last["p"]) == ("gamma", 1, None)
        assert {"not_run_there", "failed_runs"} < {*answer["note_codes"]}


def test_single_runs_and_equal_ones_tell_nothing(tmp_path: Path) -> None:
    for frame, code in (
        (made.table(seeds=1), "single_runs"),
        (made.table(noise=0.0), "equal_runs"),
    ):
        (answer,) = bs.best_at_batch(write(frame, tmp_path))
        assert best(answer) == [(size, name, None) for size, name, _ in RIGHT]
        assert code in answer["note_codes"]
        assert all(each["at"] == [] for each in answer["crossovers"])
        assert answer["crossovers"][2]["sentence"] == (
            "whether beta and gamma cross cannot be told: the better mean changes between batch "
            "sizes 131,072 and 524,288, but on both sides the two are not told apart"
        )


def test_one_curve_by_the_columns_that_are_named(tmp_path: Path) -> None:
    """Optimizers that are minimized over are configurations, not seeds of one."""
    file = write(made.table(), tmp_path)
    (answer,) = bs.best_at_batch(file, by=["schedule"])
    assert [row["curves"][0]["configurations"] for row in answer["batch_sizes"]] == [3] * 4
    assert [row["curves"][0]["runs"] for row in answer["batch_sizes"]] == [2] * 4
    assert "one_curve" in answer["note_codes"]
    with pytest.raises(TypeError, match="no option baseline"):
        bs.best_at_batch(file, baseline="alpha")
    with pytest.raises(ResultsError, match="no column"):
        bs.best_at_batch(file, by=["colour"])


def test_the_test_is_that_of_welch_with_pooled_variances() -> None:
    """A slow twin, cell by cell: pooled scatter of each curve, Welch's t, Bonferroni."""
    one = ranking(made.CURVES, 3, noise=0.02, seeds=3)
    runs = {(p.curve, p.batch_size): list(p.runs) for row in one.rows for p in row}
    pooled = {}
    for name in made.CURVES:
        squares = 0.0
        for size in made.SIZES:
            mean = sum(runs[name, size]) / 3
            for value in runs[name, size]:
                squares += (value - mean) ** 2
        pooled[name] = squares / (2 * len(made.SIZES))
    for row in one.rows:
        for place in row[1:]:
            names = row[0].curve, place.curve
            shares = [pooled[name] / 3 for name in names]
            freedom = sum(shares) ** 2 / sum(share**2 / 8 for share in shares)
            means = [sum(runs[name, place.batch_size]) / 3 for name in names]
            t = (means[1] - means[0]) / sum(shares) ** 0.5
            expected = min(1.0, 2 * stats.t.sf(t, freedom) * 3 * len(made.SIZES))
            assert place.p == pytest.approx(expected, rel=1e-9)
    # Cells with five runs have a variance of their own: scipy's test of two samples.
    own = [[1.0, 1.2, 0.9, 1.1, 1.3], [1.5, 2.5, 0.5, 1.0, 3.0, 2.0]]
    places = [
        Place(curve="", batch_size=1, runs=tuple(each), noise=Noise.of([each])) for each in own
    ]
    twin = stats.ttest_ind(*own, equal_var=False, alternative="less").pvalue
    assert p_value(*places) == pytest.approx(twin, rel=1e-12)


def test_interpolation_is_exact_for_a_cubic() -> None:
    nodes, x = np.array([0.0, 2.0, 3.0, 4.5, 7.0]), np.linspace(0, 7, 40)
    assert interpolation(nodes, x, 4) @ nodes**3 == pytest.approx(x**3, abs=1e-10)
    assert interpolation(nodes, x, 2) @ nodes**2 == pytest.approx(np.interp(x, nodes, nodes**2))
    assert (interpolation(nodes, nodes, 4) == np.eye(5)).all()


@pytest.mark.parametrize(("configurations", "curves"), [(1, 2), (1, 4), (4, 2)])
def test_equal_curves_are_seldom_significant(configurations: int, curves: int) -> None:
    """At most 5 % of 200 tables may have any claim; 8.5 % is beyond the luck of 99 % of such
    simulations."""
    equal = dict.fromkeys("abcd"[:curves], made.CURVES["beta"])
    false = 0
    for seed in range(200):
        one = ranking(equal, seed, noise=0.01, seeds=2, configurations=configurations)
        ps = [p.p for row in one.rows for p in row if p.p is not None]
        assert any(map(significant, one.rows)) <= (min(ps) <= ALPHA)
        false += min(ps) <= ALPHA
    assert false <= 17


def parabolas(size: float) -> float:
    return 3.2 + 0.006 * (np.log2(size) - 16) ** 2


def bent(size: float) -> float:
    """No polynomial: level up to 2^18.3."""
    return 3.2 + 0.05 * max(0.0, np.log2(size) - 18.3)


SHAPES = {
    "powers": (made.CURVES["gamma"], made.CURVES["beta"], made.SIZES, made.CROSSING),
    "parabola": (parabolas, lambda _: 3.26, [2**i for i in range(14, 23, 2)], 2**19.16228),
    "bent": (bent, lambda _: 3.22, [2**i for i in range(14, 23, 2)], 2**18.7),
    "two sizes": (made.CURVES["gamma"], made.CURVES["beta"], [2**17, 2**20], made.CROSSING),
}


@pytest.mark.parametrize("seeds", [2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_crossovers_cover(shape: str, seeds: int) -> None:
    """90 % intervals of curves that are no polynomials between the tested sizes: 0.93 to 1.00 of
    100 tables each."""
    first, second, sizes, crossing = SHAPES[shape]
    held = claimed = 0
    for seed in range(100):
        curves = {"first": first, "second": second}
        one = ranking(curves, seed, noise=5e-4, seeds=seeds, sizes=sizes)
        (crossover,) = one.crossovers
        claimed += bool(crossover.at)
        held += any(each.holds(crossing) for each in crossover.at)
        assert len(crossover.at) < 2
    assert claimed == 100
    assert held >= 90


def test_numbers_of_the_figure_do_not_change_silently(tmp_path: Path) -> None:
    hold("best_at_batch", figures.numbers("best_at_batch", made.of_file(tmp_path)))


def test_the_figure_shows_claims_and_failures(tmp_path: Path) -> None:
    frame = made.table()
    frame.loc[frame.index[-1], "validation_loss"] = np.inf
    ax = bs.plot("best-at-batch", write(frame, tmp_path))
    legend = ax.get_figure().legends[0]  # type: ignore[union-attr]
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == [
        *made.CURVES,
        *("mean, 90 %", "best, told apart", "crossover, 90 %", "failed runs"),
    ]
