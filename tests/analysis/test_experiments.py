"""Several experiments, or several versions of a workload, in one results folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import curves
from analysis.figure_data import FigureData, Query
from analysis.notes import Note
from results.errors import ResultsError
from results.store import Store
from tests.results import synthetic

Make = Callable[..., pd.DataFrame]
LOW, HIGH = (1, 2, 4, 8, 16), (32, 64, 128, 256)


def _other(trials: pd.DataFrame, experiment: str, **columns: Any) -> pd.DataFrame:
    """The same rows as another experiment's, its studies and trials told apart."""
    renamed = {name: trials[name] + f" of {experiment}" for name in ("study", "trial")}
    return trials.assign(experiment=experiment, **renamed, **columns)


def test_experiments_that_share_out_the_batch_sizes_make_one_curve(search: Make) -> None:
    (curve,) = curves(pd.concat([search(sizes=LOW), _other(search(sizes=HIGH), "more")]))
    assert curve.batch_sizes == [*LOW, *HIGH]
    assert curve.trials == 16


def test_two_searches_of_one_batch_size_are_two_curves(search: Make) -> None:
    small = _other(search(sizes=(*LOW, *HIGH), n=4, seed=3), "small")
    both = pd.concat([search(sizes=(*LOW, *HIGH)), small])
    first, second = curves(both)
    assert (first.group["experiment"], first.trials) == ("e", 16)
    assert (second.group["experiment"], second.trials) == ("small", 4)
    assert {first.label, second.label} == {"e", "small"}
    (pooled,) = curves(both, by=["optimizer"])
    assert pooled.trials == 4 + 4  # the least N of both, from each
    assert any(note.startswith("minimized over") and "experiment" in note for note in pooled.notes)


def test_only_the_newest_code_of_a_workload_counts(search: Make) -> None:
    old = search().assign(workload_version="old", time=pd.Timestamp("2026-01-01", tz="UTC"))
    new = _other(
        search(seed=5), "e", workload_version="new", time=pd.Timestamp("2026-02-01", tz="UTC")
    )
    (curve,) = curves(pd.concat([new, old]))
    (alone,) = curves(new)
    assert [p.steps for p in curve.points] == [p.steps for p in alone.points]
    assert curve.notes[-1] == Note("earlier_code", n=len(old))
    each = curves(pd.concat([new, old]), by=["optimizer", "workload_version"])
    assert {curve.group["workload_version"] for curve in each} == {"old", "new"}


def test_an_experiment_whose_trials_another_has_trained_is_told_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    study = synthetic.study_row("mnist-fc", "adam", 16)
    store.add_studies([study, {**study, "experiment": "later"}])
    row = synthetic.trial_row("mnist-fc", "adam", 16, 1)
    store.commit("synthetic", measurements=[], trials=[row])

    def error(where: str) -> ResultsError:
        with pytest.raises(ResultsError, match="no trial of") as caught:
            _ = FigureData(Query(sources=(tmp_path,), where=where)).recorded
        return caught.value

    assert error("experiment = 'later'").hint == (
        "the trials of later were trained by synthetic before, and are recorded once: "
        "experiment = 'synthetic'"
    )
    assert error("batch_size = 3").hint is None
