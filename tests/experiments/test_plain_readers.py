"""After a sweep pandas, pyarrow, DuckDB and Polars count each trial once, with nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import results as dataset
from experiments.execution.sweep import Summary, sweep
from results.run_state.claims import Claims
from results.store import Store
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_sweep import experiment
from tests.results.test_four_readers import READERS

ROUNDS = {"batch_size": "64", "trials": 40, "keep": 6, "seed": 2, "method": "random"}
"""Three rounds: what the first two cut off goes on in the last."""


def run(root: Path, **changes: object) -> Summary:
    of = experiment(**{**ROUNDS, **changes})
    return sweep(of, results=root, address="none", pack_size=8, trainer=FakeTraining)


@pytest.fixture
def without_compaction(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Sweeps are killed before they compact, until this is called."""
    monkeypatch.setattr(Store, "compact", lambda *_, **__: None)
    return monkeypatch.undo


def is_once(root: Path) -> None:
    """Every reader finds the rows that ours finds, and no other."""
    ours = dataset.open(root)
    for read in READERS:
        trials, points = read(root / "trials"), read(root / "measurements")
        assert sorted(trials.trial) == sorted(ours.trials.trial)
        keys = ["trial", "run", "step"]
        measured = points[keys].sort_values(keys).reset_index(drop=True)
        wanted = ours.measurements[keys].sort_values(keys).reset_index(drop=True)
        pd.testing.assert_frame_equal(measured, wanted, check_dtype=False)
        assert not points.duplicated(["trial", "step"]).any()
        studies = read(root / "studies")
        assert sorted(studies.study) == sorted(ours.studies.study)


@pytest.mark.slow
def test_after_the_rest_of_one_that_was_killed(
    tmp_path: Path, without_compaction: Callable[[], None]
) -> None:
    did = run(tmp_path)
    assert len(READERS[0](tmp_path / "trials")) > did.trials  # some have gone on
    without_compaction()
    again = run(tmp_path)
    assert (again.complete, again.trained) == (True, 0)
    is_once(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert run(tmp_path).trained == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before


@pytest.mark.slow
def test_after_another_budget_and_target(tmp_path: Path) -> None:
    run(tmp_path, keep="off", budget="60 steps")
    did = run(tmp_path, keep="off", budget="100 steps")
    assert did.trained
    assert run(tmp_path, keep="off", target="validation_error < 0.025").complete
    is_once(tmp_path)
    easier = run(tmp_path, keep="off", target="validation_error < 0.1")  # trains nothing
    assert (easier.complete, easier.trained) == (True, 0)
    is_once(tmp_path)


@pytest.mark.slow
def test_after_an_experiment_that_goes_on_with_another_s_trials(tmp_path: Path) -> None:
    run(tmp_path, keep="off", budget="60 steps")
    run(tmp_path, name="longer", keep="off", budget="100 steps")
    trials = READERS[0](tmp_path / "trials")
    assert set(trials.experiment) == {"fake", "longer"}
    assert not trials.trial.duplicated().any()


@pytest.mark.slow
def test_an_experiment_that_somebody_else_trains_too_is_left_to_them(tmp_path: Path) -> None:
    run(tmp_path, keep="off", budget="60 steps")
    info = {"experiment": "another"}
    assert Claims(tmp_path).take("p", ["x"], info=info)
    run(tmp_path, keep="off", budget="80 steps")
    is_once(tmp_path)
    assert Claims(tmp_path).take("q", ["y"], info={"experiment": "fake"})
    run(tmp_path, keep="off", budget="100 steps")
    trials = READERS[0](tmp_path / "trials")
    assert trials.trial.duplicated().any()
