"""Adaptive search: what points depend on, and that they go where it is good."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from experiments.search import METHODS, Row, block, table
from experiments.search.adaptive import BLOCK
from experiments.search.space import Dimension
from tests.marks import quick

pytest.importorskip("optuna")
pytest.importorskip("cmaes")

SPACE = {
    "learning_rate": Dimension.parse("log", [1e-4, 10]),
    "momentum": Dimension.parse("reverse_log", [0.5, 0.999]),
}
MIXED = {
    **SPACE,
    "width": Dimension.parse("integer", [1, 8]),
    "kind": Dimension.parse("discrete", ["a", "b", 3]),
}
ADAPTIVE = [method for method in METHODS if block(method)]
QUICK = [method for method in ADAPTIVE if method != "optuna:gp"]


def steps(row: Row) -> int:
    """Least at a learning rate of 0.1 and a momentum of 0.9, over 300 steps in a fifth of space."""
    u = [
        SPACE[name].unit(row[name]) - at
        for name, at in (("learning_rate", 0.6), ("momentum", 0.26))
    ]
    return round(100 * math.exp(8 * sum(x * x for x in u)))


def searched(method: str, seed: int, n: int, space=SPACE, ask: int = BLOCK) -> list[Row]:
    """The rows of a search in which trials of over 250 steps miss the target."""
    drawn = table(method, space, seed, n, worst=500.0)
    rows: list[Row] = []
    while len(rows) < n:
        history = [s if (s := steps(row)) < 250 else None for row in rows]
        rows += drawn.rows(len(rows), min(len(rows) + ask, n), history)
    return rows


@pytest.mark.parametrize("method", QUICK)
def test_a_search_that_is_asked_again_draws_the_same(method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = searched(method, 3, 40)
    assert searched(method, 3, 40) == first
    assert searched(method, 3, 40, ask=1) == first  # whatever is asked for at a time
    assert searched(method, 3, 20) == first[:20]
    assert searched(method, 4, 40) != first


def test_a_gaussian_process_too():
    first = searched("optuna:gp", 3, 11)
    assert searched("optuna:gp", 3, 11, ask=1) == first
    assert steps(first[8]) < np.median([steps(row) for row in first[:8]])


@pytest.mark.parametrize("method", QUICK)
def test_all_kinds_of_dimensions(method):
    for row in searched(method, 1, 24, MIXED):
        assert all(MIXED[name].holds(value) for name, value in row.items())
        assert type(row["width"]) is int
    assert len(searched(method, 1, 24, {"learning_rate": SPACE["learning_rate"]} | SPACE)) == 24


@pytest.mark.slow
@pytest.mark.parametrize("method", quick(["optuna:tpe", "optuna:cmaes"], 1))
def test_what_learns_goes_where_it_is_good(method):
    """Over five searches: its last rows are better than its first, and than random ones."""

    def late(name: str) -> float:
        return float(np.median([steps(r) for s in range(5) for r in searched(name, s, 64)[48:]]))

    learned, drawn = late(method), late("optuna:random")
    assert learned < 0.8 * drawn


def test_rows_depend_on_what_came_before_their_block_and_on_nothing_else():
    def draw(history):
        drawn = table("optuna:tpe", SPACE, 1, 24, worst=500.0)
        rows = drawn.rows(0, 8)
        rows += drawn.rows(8, 12, history[:8])
        return rows + drawn.rows(12, 24, history)

    good = [100, 90, None, 80, 70, 60, 50, 40, *range(30, 38)]
    bad = [*good[:8], *[None] * 8]
    assert draw(good)[:16] == draw(bad)[:16]
    assert draw(good)[16:] != draw(bad)[16:]
    with pytest.raises(ValueError, match="rows up to 17 need 16 results, not 15"):
        table("optuna:tpe", SPACE, 1, 24).rows(0, 17, good[:15])
    rows = table("optuna:tpe", SPACE, 1, 24).rows(0, 2)
    rows[0].clear()
    assert table("optuna:tpe", SPACE, 1, 24).rows(0, 1) != rows[:1]


def test_optunas_log_is_quiet_and_its_settings_are_left_alone(capfd):
    import optuna

    before = optuna.logging.get_verbosity()
    searched("optuna:tpe", 1, 24)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")
