"""Final losses at several budgets: the curve at equal loss, the optimal batch size, their errors,
on loss surfaces whose laws are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import batchscale as bs
from analysis import figures
from analysis.curves.final_losses import final_losses
from analysis.curves.iso_loss import iso_loss_curves, noise
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.fit.optimal_batch import optimal_batch
from analysis.fit.regimes import regimes
from analysis.formatting import short
from batchscale.output import optimal_batch_table
from results.errors import ResultsError
from results.targets.evaluations import Evaluations
from results.targets.target import Target
from tests.analysis import loss_surfaces as made
from tests.analysis.reference import hold
from tests.analysis.true_curves import holds

SIZES = [2**i for i in range(4, 14)]
BUDGETS = [2.0**i for i in range(17, 27)]
GOAL = Target(metric="loss", value=made.TARGET)
CURVES = 30


def test_the_curve_at_equal_loss_is_that_of_the_surface() -> None:
    (curve,) = iso_loss_curves([made.final(made.knee, SIZES, BUDGETS)], GOAL)
    steps = [point.steps for point in curve.points]
    assert steps == pytest.approx([made.steps_of_knee(size) for size in SIZES], rel=3e-4)
    fit = regimes(curve)
    assert fit.best["critical_batch_size"] == pytest.approx(made.CRITICAL, rel=1e-3)
    least = fit.located.tested("min_examples", 0.9)[0]
    assert np.exp(least) == pytest.approx(SIZES[0] * made.steps_of_knee(SIZES[0]), rel=1e-3)
    assert curve.named == "iso_loss"
    assert None not in [point.bar for point in curve.points]
    (few,) = iso_loss_curves([made.final(made.knee, SIZES, BUDGETS[4:7])], GOAL)
    assert [point.bar for point in few.points] == [None] * len(few.points)


def test_a_metric_of_which_more_is_better_gives_the_same_steps() -> None:
    lower = made.final(made.knee, SIZES, BUDGETS, noise=0.005)
    higher = made.final(made.knee, SIZES, BUDGETS, noise=0.005, lower=False)
    (one,) = iso_loss_curves([lower], GOAL)
    (two,) = iso_loss_curves(
        [higher], Target(metric="loss", value=-made.TARGET, lower_is_better=False)
    )
    assert [p.steps for p in one.points] == pytest.approx([p.steps for p in two.points])
    assert optimal_batch(lower).optima[3].batch_size == optimal_batch(higher).optima[3].batch_size


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.003, 0.01])
def test_intervals_at_equal_loss_cover(deviation: float) -> None:
    points, least, critical, deviations = [], [], [], []
    for seed in range(CURVES):
        final = made.final(made.knee, SIZES, BUDGETS, deviation, seed)
        deviations.append(noise(final)[0])
        (curve,) = iso_loss_curves([final], GOAL)
        for point in curve.points:
            assert point.spread is not None
            true = made.steps_of_knee(point.batch_size)
            points.append(point.spread[0] <= true <= point.spread[1])
        # Over the tested range: S at its largest batch size, and E at its smallest over that.
        first, last = SIZES[0], SIZES[-1]
        fewest = made.steps_of_knee(last)
        true = first * made.steps_of_knee(first) / fewest
        located = regimes(curve).located
        critical.append(holds(located.tested("critical_batch_size", 0.9), np.log(true)))
        least.append(holds(located.tested("min_steps", 0.9), np.log(fewest)))
    assert 0.85 <= np.mean(points) <= 0.98
    assert np.mean(critical) >= 0.8
    assert np.mean(least) >= 0.8
    assert deviation <= np.mean(deviations) <= 1.4 * deviation


def test_the_optimal_batch_size_is_that_of_the_surface() -> None:
    sizes = [2**i for i in range(6, 14)]
    budgets = [2.0**i for i in range(20, 28)]
    optimal = optimal_batch(made.final(made.parabola, sizes, budgets))
    for optimum in optimal.optima:
        true = made.COEFFICIENT * optimum.budget**made.EXPONENT
        assert optimum.batch_size.value == pytest.approx(true, rel=1e-6)
    assert optimal.exponent.value == pytest.approx(made.EXPONENT, abs=1e-6)
    assert optimal.coefficient.value == pytest.approx(made.COEFFICIENT, rel=1e-4)
    at, under, over = optimal.law([1e7])
    assert at[0] == pytest.approx(made.COEFFICIENT * 1e7**made.EXPONENT, rel=1e-5)
    assert under[0] <= at[0] <= over[0]


@pytest.mark.slow
@pytest.mark.parametrize(("surface", "deviation"), [(made.parabola, 0.004), (made.valley, 0.002)])
def test_intervals_of_the_optimal_batch_size_cover(surface: made.Surface, deviation: float) -> None:
    sizes, budgets = [2**i for i in range(6, 14)], [2.0**i for i in range(20, 28)]
    exponent, coefficient, vertex, noises = [], [], [], []
    for seed in range(8 * CURVES):
        optimal = optimal_batch(made.final(surface, sizes, budgets, deviation, seed))
        noises.append(optimal.noise)
        exponent.append(optimal.exponent.holds(made.EXPONENT))
        coefficient.append(optimal.coefficient.holds(made.COEFFICIENT))
        vertex += [
            each.batch_size.holds(made.COEFFICIENT * each.budget**made.EXPONENT)
            for each in optimal.optima
        ]
    # The random-effects line never takes its scatter to be less than the errors of its points.
    assert 0.88 <= np.mean(exponent) <= 0.99
    assert 0.88 <= np.mean(coefficient) <= 0.99
    assert 0.86 <= np.mean(vertex) <= 0.95
    assert np.mean(noises) == pytest.approx(deviation, rel=0.15)


def test_an_optimum_below_the_tested_batch_sizes_is_bounded() -> None:
    sizes, budgets = [2**i for i in range(11, 17)], [2.0**i for i in range(20, 24)]
    optimal = optimal_batch(made.final(made.parabola, sizes, budgets, 1e-4))
    assert [each.batch_size.value for each in optimal.optima] == [None] * 4
    assert {each.best for each in optimal.optima} == {2048.0}
    assert [each.batch_size.high for each in optimal.optima] == [4096.0] * 4
    assert optimal.exponent.value is None
    assert "the best of these is the smallest or the largest" in optimal.notes[0]
    assert optimal.sentence == "optimal batch size against examples: no law"


def test_an_optimum_at_an_edge_is_a_bound_and_the_law_leaves_it_out() -> None:
    """The smallest batch size is the best at the least budgets, and the next four times as large:
    no tested one lies on the other side of the vertex of their parabolas."""
    budgets = [2.0**i for i in range(20, 28)]
    truths = [made.COEFFICIENT * budget**made.EXPONENT for budget in budgets]
    first = round(truths[2] / 1.5)
    final = made.final(made.parabola, [first * 4**i for i in range(6)], budgets, 1e-4)
    optimal = optimal_batch(final)
    at_edge = [each for each in optimal.optima if each.best == first]
    assert [each.budget for each in at_edge] == budgets[:3]
    for each in at_edge:
        assert each.batch_size == Interval(high=4.0 * first)
    for each, true in zip(optimal.optima[3:], truths[3:], strict=True):
        assert each.batch_size.value == pytest.approx(true, rel=0.01)
    assert list(optimal.counted) == budgets[3:]
    assert "the optimum at 3 budgets lies outside" in optimal.notes[0]
    assert f"≤ {short(4.0 * first)}" in optimal_batch_table.optimal_batch(
        [optimal.to_dict()], "table"
    )


# From files and sweeps.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "final.csv"
    path.write_text(made.rows(made.knee, SIZES, BUDGETS, [1e-3, 2e-3, 4e-3]))
    return path


def test_a_file_of_final_losses(file: Path) -> None:
    (curve,) = bs.regimes(file, read="final", target=f"train_loss < {made.TARGET!r}")
    assert curve["best"]["critical_batch_size"] == pytest.approx(made.CRITICAL, rel=1e-3)
    assert curve["estimator"] == "iso_loss"
    assert [point["learning_rate"] for point in curve["points"]] == [2e-3] * len(SIZES)
    assert [point["steps"] for point in curve["points"]] == pytest.approx(
        [made.steps_of_knee(size) for size in SIZES], rel=3e-4
    )
    assert any("equal loss" in note for note in curve["notes"])


@pytest.mark.slow
def test_tokens_are_divided_by_those_of_an_example(tmp_path: Path) -> None:
    path = tmp_path / "final.csv"
    lines = made.rows(made.knee, SIZES, BUDGETS, [1e-3, 2e-3]).splitlines()
    cells = [line.split(",") for line in lines[1:]]
    text = "batch_size,tokens,tokens_per_example,learning_rate,train_loss\n" + "\n".join(
        f"{size},{int(examples) * 64},64,{rate},{loss}" for size, examples, rate, loss in cells
    )
    path.write_text(text)
    (final,) = FigureData(Query(sources=[path])).final_losses
    assert final.budgets == BUDGETS
    query = Query(sources=[path], read="final", target=f"train_loss < {made.TARGET!r}")
    (curve,), (in_tokens,) = (
        FigureData(replace(query, unit=unit)).curves for unit in (None, "tokens")
    )
    assert [point.batch_size for point in in_tokens.points] == [size * 64 for size in SIZES]
    assert [point.steps for point in in_tokens.points] == pytest.approx(
        [point.steps for point in curve.points]
    )
    (final,) = FigureData(replace(query, unit="tokens")).final_losses
    optimal = optimal_batch(final)
    assert (optimal.unit, optimal.optima[0].budget) == ("tokens", BUDGETS[0] * 64)
    path.write_text(text.replace(",tokens_per_example", ",x"))
    (final,) = FigureData(Query(sources=[path])).final_losses
    assert (final.example_unit, final.budgets[0]) == ("token", BUDGETS[0] * 64)


def test_budgets_that_differ_by_rounding_are_one(tmp_path: Path) -> None:
    path = tmp_path / "final.csv"
    path.write_text(
        "batch_size,examples,loss\n" + "3,999,2.5\n4,1000,2.4\n8,1008,2.3\n3,1999,2\n4,2000,2\n"
    )
    (final,) = FigureData(Query(sources=[path])).final_losses
    assert final.budgets == [1000, 1999.5]
    assert [point.examples for point in final.points] == [999, 1000, 1008, 1999, 2000]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch_size,examples,loss\n8,x,1\n", "line 2: examples is 'x', not a number"),
        ("batch_size,examples,loss\n8,100,1\n8,4,1\n", "line 3: examples is 4, less than one"),
        ("batch_size,examples,width\n8,100,1\n", "has no metric besides examples"),
        ("batch_size,tokens,tokens_per_example,loss\n8,9,0,1\n", "tokens_per_example must be"),
        ("batch_size,examples,loss\n8,1e30,1\n", "beyond 64 bits"),
        ("batch_size,examples,loss\n8,1e30,nan\n", "beyond 64 bits"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "final.csv"
    path.write_text(text)
    with pytest.raises(ResultsError, match=says):
        bs.regimes(path, read="final", target="loss < 1")


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        ({}, "not steps to a target", "--read final"),
        ({"read": "final"}, "need the loss", "final values are"),
        ({"read": "finale"}, "cannot be read as 'finale'", "final"),
        ({"read": "final", "target": "train_loss < 1"}, "on both sides", "with a value of"),
        ({"read": "final", "target": "test_loss < 1"}, "has a value of test_loss", "name the"),
    ],
)
def test_wrong_queries(file: Path, options: dict[str, str], says: str, hint: str) -> None:
    with pytest.raises(ResultsError, match=says) as caught:
        bs.regimes(file, **options)  # type: ignore[arg-type]
    assert hint in str(caught.value.hint)


def test_diverged_runs_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "final.csv"
    path.write_text("batch_size,examples,learning_rate,loss\n8,64,1,nan\n8,64,2,3\n8,128,1,2\n")
    (final,) = FigureData(Query(sources=[path])).final_losses
    assert [point.value for point in final.points] == [3, 2]
    assert final.notes == ("1 of 3 runs has no final value: left out",)
    runs = "8,64,1,nan\n8,64,1,5\n8,64,2,3\n8,64,2,nan\n8,64,2,nan\n"
    path.write_text(f"batch_size,examples,learning_rate,loss\n{runs}")
    (final,) = FigureData(Query(sources=[path])).final_losses
    assert [point.value for point in final.points] == [3]
    assert final.failed == {(8, 64): 2}


def _trials(**columns: object) -> pd.DataFrame:
    rows = pd.DataFrame(
        {
            "trial": ["a", "b", "c", "d"], "study": "s", "workload": "w", "optimizer": "sgd",
            "batch_size": 8, "steps_run": [10, 10, 20, 20], "examples_run": [80, 80, 160, 160],
            "status": "COMPLETE", "stop_reason": "budget", "role": "search",
            "metaparameters": ['{"x":1}', '{"x":2}', '{"x":1}', '{"x":2}'], "run": "r",
        }
    )  # fmt: skip
    return rows.assign(**columns)  # type: ignore[arg-type]


# At steps 5, 10 and, where it ran so long, 20; in any order.
_VALUES: dict[str, list[float]] = {"a": [9, 5], "b": [1, 4], "c": [9, 5, 3], "d": [9, 4, 2.5]}
MEASURED = Evaluations.of_frame(
    pd.DataFrame(
        [
            {"trial": trial, "step": step, "metrics": f'{{"loss": {value}}}'}
            for trial, values in _VALUES.items()
            for value, step in sorted(zip(values, (5, 10, 20), strict=False))
        ]
    )
)


def test_the_last_evaluation_counts_and_the_best_of_a_search() -> None:
    goal = Target(metric="loss", value=0)
    (final,) = final_losses(_trials(), MEASURED, goal)
    assert [(p.value, p.configurations) for p in final.points] == [(4, 2), (2.5, 2)]
    assert final.budgets == [80, 160]
    repeats = _trials(role=["search", "repeat", "search", "repeat"])
    (final,) = final_losses(repeats, MEASURED, goal)
    assert [p.value for p in final.points] == [5, 3]
    seeds = _trials(role="repeat", metaparameters='{"x":1}')
    (final,) = final_losses(seeds, MEASURED, goal)
    assert [(p.value, p.configurations) for p in final.points] == [(4.5, 1), (2.75, 1)]


def test_runs_that_ended_at_their_target_have_no_final_loss() -> None:
    goal = Target(metric="loss", value=0)
    at_target = _trials(stop_reason="target")
    with pytest.raises(ResultsError, match="ended at their target") as caught:
        final_losses(at_target, MEASURED, goal)
    assert "stop_at_target: false" in str(caught.value.hint)
    (final,) = final_losses(at_target.assign(stop_at_target=False), MEASURED, goal)
    assert len(final.points) == 2


def test_a_run_that_diverged_later_has_its_losses_at_smaller_budgets() -> None:
    """It was a failed run of each of them, and of the last as often as there were budgets."""
    ends = {"stop_reason": [*["budget"] * 3, "diverged"], "steps_run": [20, 20, 20, 15]}
    status = [*["COMPLETE"] * 3, "INFEASIBLE"]
    more = {"schedule": "constant", "budget_steps": 20, "metaparameters": '{"x":1}'}
    runs = _trials(role="repeat", status=status, **ends, **more)[2:]
    under = [Limit.parse(f"{budget} examples") for budget in (80, 160, 320)]
    (final,) = final_losses(runs, MEASURED, Target(metric="loss", value=0), under=under)
    assert [(p.budget, p.runs) for p in final.points] == [(80, (5, 4)), (160, (3,))]
    assert final.failed == {(8, 160): 1}
    (first,) = final_losses(runs, MEASURED, Target(metric="loss", value=0), under=under[:1])
    assert (first.failed, first.notes) == ({}, ())


def test_numbers_of_the_figure_do_not_change_silently(tmp_path: Path) -> None:
    hold("optimal_batch", figures.numbers("optimal_batch", made.finals(tmp_path)))


@pytest.mark.slow
def test_the_figure_and_its_numbers(file: Path, tmp_path: Path) -> None:
    text = made.rows(made.parabola, [2**i for i in range(6, 14)], BUDGETS[3:], [1e-3, 2e-3])
    file.write_text(text)
    bs.plot("optimal-batch", file, output=tmp_path / "figure.png")
    table = pd.read_csv(tmp_path / "figure.csv")
    assert table["budget"].tolist() == BUDGETS[3:]
    assert table["exponent"].iloc[0] == pytest.approx(made.EXPONENT, abs=1e-4)
    true = made.COEFFICIENT * table["budget"] ** made.EXPONENT
    assert table["optimal_batch_size"].tolist() == pytest.approx(true.tolist(), rel=1e-3)
    with pytest.raises(ResultsError, match="no unit 'words'"):
        bs.plot("optimal_batch", file, unit="words")
    with pytest.raises(ResultsError, match="without tokens_per_example"):
        bs.plot("optimal_batch", file, unit="tokens")
    file.write_text("batch_size,examples,loss\n8,64,2\n16,64,1\n8,128,2\n16,128,1\n")
    with pytest.raises(ResultsError, match="at three batch sizes"):
        bs.plot("optimal_batch", file)
