"""Search tables: their rows never change and cover the space as their method says; the keys of a
file that say how a study is searched."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from experiments.config.compile import parse
from experiments.search import METHODS, Row, table
from experiments.search.grid import levels
from experiments.search.space import Dimension, Value
from tests.experiments.files import EXPERIMENT, ids, own
from tests.forked import SERVER

SPACE = {
    "momentum": Dimension.parse("reverse_log", [0.5, 0.99]),
    "learning_rate": Dimension.parse("log", [1e-4, 10]),
    "width": Dimension.parse("integer", [1, 8]),
}


def sobol(space, seed: int, n: int) -> list[Row]:
    return table("sobol", space, seed, n).rows(0, n)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["sobol", "random"]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_the_first_rows_never_change(method, seed, few, more):
    few, more = sorted((few, more))
    one = table(method, SPACE, seed, few).rows(0, few)
    assert one == table(method, SPACE, seed, more).rows(0, more)[:few]


def test_rows_are_fixed_for_good():
    """Of another version of scipy too: recorded trials would otherwise be trained again."""
    assert sobol(SPACE, 7, 3) == ROWS


ROWS = [
    {"learning_rate": 0.178703994, "momentum": 0.9861806519, "width": 1},
    {"learning_rate": 0.000543914491, "momentum": 0.812224621, "width": 5},
    {"learning_rate": 0.0209426518, "momentum": 0.9572074118, "width": 3},
]


def test_an_interrupt_that_scipy_ignores_ends_the_drawing():
    """In a process of its own, which reads the direction numbers for the first time."""
    process = SERVER.Process(target=_interrupted)
    process.start()
    process.join()
    assert process.exitcode == 0


def _interrupted() -> None:
    reading = patch.object(np, "load", side_effect=KeyboardInterrupt)
    with reading as load, pytest.raises(KeyboardInterrupt):
        sobol(SPACE, 7, 3)
    assert load.called
    assert sobol(SPACE, 7, 3) == ROWS


def test_rows_in_any_order_of_asking():
    drawn = table("sobol", SPACE, 3, 8)
    late = drawn.rows(100, 130)
    assert drawn.rows(0, 200) == sobol(SPACE, 3, 200)
    assert late == sobol(SPACE, 3, 130)[100:]


def test_a_row_that_is_changed_by_its_reader_does_not_change_the_table():
    drawn = table("sobol", SPACE, 3, 8)
    drawn.rows(0, 1)[0]["momentum"] = 0
    assert drawn.rows(0, 1) == sobol(SPACE, 3, 1)


def test_the_order_of_the_file_means_nothing():
    assert sobol(SPACE, 5, 8) == sobol(dict(reversed(SPACE.items())), 5, 8)


def test_seeds_give_different_blocks():
    assert sobol(SPACE, 1, 8) != sobol(SPACE, 2, 8)


@pytest.mark.parametrize("n", [16, 64, 256])
def test_blocks_of_a_power_of_two_are_balanced(n):
    """One point in each of n equal intervals of each dimension: what Sobol's points are for."""
    rows = sobol(SPACE, 11, n)
    for name in ("learning_rate", "momentum"):
        cells = {int(SPACE[name].unit(row[name]) * n) for row in rows}
        assert len(cells) == n
    widths = [row["width"] for row in rows]
    assert {widths.count(width) for width in range(1, 9)} == {n // 8}


def test_nothing_to_tune_gives_empty_rows():
    assert sobol({}, 1, 3) == [{}, {}, {}]


def test_random_rows_are_fixed_for_good():
    assert table("random", SPACE, 7, 64).rows(0, 2) == RANDOM_ROWS


RANDOM_ROWS = [
    {"learning_rate": 0.601053957, "momentum": 0.9845454855, "width": 8},
    {"learning_rate": 3.32436019, "momentum": 0.9625911287, "width": 4},
]


def test_random_rows_are_uniform_and_independent():
    rows = table("random", SPACE, 5, 4000).rows(0, 4000)
    units = np.array([[SPACE[name].unit(row[name]) for name in sorted(SPACE)] for row in rows])
    assert kstest(units[:, 0], "uniform").pvalue > 0.01
    assert kstest(units[:, 1], "uniform").pvalue > 0.01
    assert np.bincount([row["width"] for row in rows])[1:].std() < 40
    assert np.abs(np.corrcoef(units.T) - np.eye(3)).max() < 0.05
    late = table("random", SPACE, 5, 8).rows(3990, 4000)
    assert late == rows[3990:]


def values(rows: list[Row], name: str) -> list[Value]:
    return sorted({row[name] for row in rows})


@given(st.integers(1, 400), st.integers(0, 2**63 - 1))
def test_a_grid_is_full_and_as_even_as_can_be(trials, seed):
    counts = levels(SPACE, trials)
    size = table("grid", SPACE, 0, trials).size
    assert size is not None
    assert size == np.prod(list(counts.values())) >= trials
    assert max(counts.values()) - min(counts.values()) <= 1 or counts["width"] == 8
    rows = table("grid", SPACE, seed, trials).rows(0, size + 5)
    assert len(rows) == len({tuple(row.items()) for row in rows}) == size
    assert {name: len(values(rows, name)) for name in SPACE} == counts
    assert rows[: size // 2] == table("grid", SPACE, seed, size).rows(0, size // 2)


def test_a_grids_levels_are_even_on_the_scale_and_hold_both_ends():
    space = {
        "learning_rate": Dimension.parse("log", [1e-3, 10]),
        "momentum": Dimension.parse("reverse_log", [0.9, 0.999]),
        "kind": Dimension.parse("discrete", ["a", "b", "c"]),
    }
    assert levels(space, 40) == {"kind": 3, "learning_rate": 4, "momentum": 4}
    assert table("grid", space, 0, 40).size == 48
    rows = table("grid", {**space}, 1, 45).rows(0, 48)
    assert values(rows, "learning_rate") == pytest.approx([1e-3, 0.0215443469, 0.464158883, 10])
    assert values(rows, "momentum") == pytest.approx([0.9, 1 - 0.1**1.667, 1 - 0.1**2.333, 0.999],
                                                     abs=1e-4)  # fmt: skip
    assert values(rows, "kind") == ["a", "b", "c"]


def test_a_grids_prefix_is_spread_over_the_space():
    rows = table("grid", {n: SPACE[n] for n in ("learning_rate", "momentum")}, 2, 64).rows(0, 64)
    for name in ("learning_rate", "momentum"):
        units = [SPACE[name].unit(row[name]) for row in rows[:24]]
        assert len({round(7 * unit) for unit in units}) == 8
    assert rows != table("grid", {n: SPACE[n] for n in rows[0]}, 3, 64).rows(0, 64)


def test_grids_of_few_values_and_of_none():
    few = {"width": SPACE["width"], "kind": Dimension.parse("discrete", [1, 2])}
    assert table("grid", few, 0, 100).size == 16
    assert len(table("grid", few, 1, 100).rows(0, 100)) == 16
    assert table("grid", {}, 1, 5).rows(0, 5) == [{}]
    assert table("grid", SPACE, 1, 1).rows(0, 5) == [
        {"learning_rate": 0.0316227766, "momentum": pytest.approx(0.9293, abs=1e-4), "width": 5}
    ]


def test_points_are_the_rows():
    given = [{"learning_rate": 0.1}, {"learning_rate": 0.2}]
    drawn = table("points", {}, 1, 2, given)
    assert drawn.size == 2
    assert drawn.rows(0, 5) == given
    drawn.rows(0, 1)[0]["learning_rate"] = 3
    assert drawn.rows(0, 1) == given[:1]


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_says_of_itself_fits_together(name):
    method = METHODS[name]
    assert method.name == name
    if method.not_enlargeable == "":  # an enlarged space is filled from a table without end
        assert table(name, SPACE, 1, 8).size is None
    if method.rounds_up:
        assert (table(name, SPACE, 1, 7).size or 0) >= 7


DIGITS = """\
workload: digits-mlp
grid:
  batch_size: 8..16
  optimizer: [sgd, momentum]
"""
POINTS = """\
points:
  - {learning_rate: 0.1, momentum: 0.9}
  - {learning_rate: 0.2, momentum: 0.9}
  - {learning_rate: 0.2, momentum: 0.5}
"""


def experiment(more: str = "") -> Any:
    return parse(DIGITS + more, "my.yaml")


def test_defaults():
    study = experiment().studies()[0]
    search = study.search
    assert (search.method, search.extend, search.repeats) == ("sobol", 0, 0)
    assert study.estimator == "minimum"


def test_all_of_them_reach_the_study():
    of = experiment("method: random\nextend: 2\nrepeats: 5\nestimator: best_of_10\nkeep: 10\n")
    study = of.studies()[0]
    search = study.search
    assert (search.method, search.extend, search.repeats) == ("random", 2, 5)
    assert study.estimator == "best_of_10"
    assert ids(of) != ids(experiment())


def test_what_draws_the_points_does_not_change_the_study():
    """Points and seeds are not part of a study's identity; the default table is what it was."""
    sobol, random = experiment().studies(), experiment("method: random\n").studies()
    assert [p.id for p in sobol] == [p.id for p in random]
    assert sobol[0].trial(0).metaparameters != random[0].trial(0).metaparameters
    assert sobol[0].trial(0).id == FIRST
    assert ids(experiment("method: sobol\n")) == ids(experiment())


FIRST = "caad663f25b8ee67071d"


def test_a_grid_is_trained_whole():
    sgd, _, momentum, _ = experiment("method: grid\ntrials: 10\n").studies()
    assert (sgd.trials, sgd.max_rows) == (10, 10)
    assert (momentum.trials, momentum.max_rows) == (12, 12)
    rows = momentum.draw(0, 50)
    assert len({trial.id for trial in rows}) == 12
    assert len({trial.metaparameters["learning_rate"] for trial in rows}) == 4


def test_points_are_the_trials():
    of = experiment(POINTS)
    assert of.search_method == "points"
    sgd, _, momentum, _ = of.studies()
    assert [t.metaparameters for t in momentum.draw(0, 9)] == [
        {"learning_rate": 0.1, "momentum": 0.9},
        {"learning_rate": 0.2, "momentum": 0.9},
        {"learning_rate": 0.2, "momentum": 0.5},
    ]
    assert [t.metaparameters for t in sgd.draw(0, 9)] == [  # without momentum two are the same
        {"learning_rate": 0.1},
        {"learning_rate": 0.2},
    ]
    assert (sgd.trials, momentum.trials, momentum.max_rows) == (2, 3, 3)
    assert momentum.notation()["learning_rate"] == {"discrete": [0.1, 0.2]}


def test_fewer_points_than_there_are():
    plans = experiment(POINTS + "trials: 2\n").studies()
    assert [p.trials for p in plans] == [2, 2, 2, 2]
    assert [len(p.draw(0, 9)) for p in plans] == [2, 2, 2, 2]
    assert [p.trials for p in experiment(POINTS + "trials: 9\n").studies()] == [2, 2, 3, 3]


def test_points_of_each_optimizer_with_shares_and_fields(tmp_path):
    text = EXPERIMENT.replace("  width: [4, 8]\n", "  schedule: linear\n") + (
        "search: {weight_decay: 0.1}\n"
        "points:\n"
        "  sgd: [{learning_rate: 1, decay: 0.5, width: 8}]\n"
        "  momentum: [{learning_rate: 1, momentum: 0.5, decay_steps: 9}]\n"
        "  my_opt.py:Sign: [{learning_rate: 0.1, decay: 1, power: 2}]\n"
    )
    of = own(tmp_path, text)
    found = {p.optimizer: p for p in of.studies() if p.batch_size == 8}
    trials = {name: plan.draw(0, 9)[0].metaparameters for name, plan in found.items()}
    budget = found["sgd"].budget_steps
    assert trials["sgd"] == {
        "decay_steps": budget // 2, "end_factor": 0.01, "learning_rate": 1, "weight_decay": 0.1,
        "width": 8,
    }  # fmt: skip
    assert trials["momentum"]["decay_steps"] == 9
    assert trials["my_opt.py:Sign"]["power"] == 2
    assert "width" not in found["sgd"].identity["workload"]["fields"]
    assert "width" in found["momentum"].identity["workload"]["fields"]
