"""What the pages teach to ask in SQL and pandas gives the numbers of ``regimes``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import batchscale as bs
from results.errors import ResultsError
from tests.batchscale.conftest import Command
from tests.experiments.test_sweep import experiment, run

SELECT = "SELECT batch_size, steps, reached, trials FROM best ORDER BY batch_size"


def _regimes(opened: bs.Run) -> pd.DataFrame:
    (curve,) = opened.regimes()
    points = pd.DataFrame(curve["points"]).assign(reached=lambda frame: frame.steps.notna())
    assert (points.trials == curve["trials"]).all()
    return points[["batch_size", "steps", "reached", "trials"]]


def test_after_a_range_was_narrowed_all_say_the_same(tmp_path: Path, command: Command) -> None:
    sizes = "32, 64, 128"
    run(tmp_path, experiment(keep="off", batch_size=sizes))
    narrow = {"search": {"learning_rate": {"linear": [0.5, 2.0]}}}
    run(tmp_path, experiment(keep="off", batch_size=sizes, **narrow))
    opened = bs.open(tmp_path)
    minima = opened.trials.groupby("batch_size").steps_to_target.min().reset_index(drop=True)
    expected = _regimes(opened)
    assert (minima < expected.steps).any()  # of both searches: the number that was taught
    asked = opened.query(SELECT)
    pd.testing.assert_frame_equal(asked, expected, check_dtype=False)
    pandas = opened.best.sort_values("batch_size")[[*expected]].reset_index(drop=True)
    pd.testing.assert_frame_equal(pandas, expected, check_dtype=False)
    answer = command("query", SELECT, str(tmp_path), "--json")
    assert answer.status == 0
    printed = pd.DataFrame(json.loads(answer.out))
    pd.testing.assert_frame_equal(printed, expected, check_dtype=False)
    rates = opened.query(
        "SELECT t.steps_to_target, b.steps FROM best b JOIN trials t USING (trial)"
    )
    assert (rates.steps_to_target == rates.steps).all()


def test_a_batch_size_with_fewer_trials_bounds_all_and_a_miss_is_a_row(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", trials=6, batch_size="32, 64"))
    run(tmp_path, experiment(keep="off", trials=6, batch_size="32, 64, 128, 256"))
    run(tmp_path, experiment(keep="off", trials=12, batch_size="128, 256"))
    asked = bs.open(tmp_path).query(SELECT)
    pd.testing.assert_frame_equal(asked, _regimes(bs.open(tmp_path)), check_dtype=False)
    assert set(asked.trials) == {6}
    hard = bs.open(tmp_path).with_target("validation_error < 0.05").where("steps_to_target IS NULL")
    missed = hard.query("SELECT steps, reached, trial FROM best")
    assert not missed.reached.any()
    assert missed.steps.isna().all()
    assert missed.trial.isna().all()


@pytest.mark.parametrize("source", ["own", "published"])
@pytest.mark.slow
def test_of_packaged_results(source: str, command: Command) -> None:
    opened = bs.open(source)
    where = "experiment = 'digits'" if source == "own" else "source = 'shallue_2019_digitized'"
    curves = opened.regimes(where=where)
    expected = [(p["batch_size"], p["steps"]) for curve in curves for p in curve["points"]]
    asked = opened.where(where).query("SELECT batch_size, steps FROM best")
    assert sorted(asked.dropna().itertuples(index=False, name=None)) == sorted(
        pair for pair in expected if pair[1] is not None
    )
    assert command("query", "SELECT count(*) FROM best", source).status == 0


def test_of_a_file_of_curves(tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    file.write_text("batch_size,steps\n8,100\n16,50\n16,54\n")
    asked = bs.open(file).query("SELECT batch_size, steps FROM best")
    np.testing.assert_allclose(asked, [[8.0, 100.0], [16.0, math.sqrt(50 * 54)]], rtol=1e-12)


def test_it_is_computed_only_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, experiment(trials=2))
    opened = bs.open(tmp_path)
    with pytest.raises(ResultsError, match="Table with name bst") as caught:
        opened.query("SELECT * FROM bst")
    assert caught.value.hint == "did you mean best?"
    with pytest.raises(ResultsError) as caught:
        opened.query("SELECT reachd FROM best")
    assert caught.value.hint == "did you mean reached?"

    def refuse(_: object) -> None:
        raise AssertionError("best is computed")

    monkeypatch.setattr("analysis.best.best", refuse)
    assert opened.query("SELECT max(steps_to_target) AS best FROM trials").best.notna().all()
    assert opened.query("WITH best AS (SELECT 1 AS a) SELECT a FROM best").a.tolist() == [1]
    with pytest.raises(AssertionError, match="best is computed"):
        opened.query("SELECT * FROM trials JOIN Best USING (trial)")
