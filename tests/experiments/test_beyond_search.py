"""What follows a search: the space enlarged where the optimum has no room, the best trial again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from analysis.curves import edges
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution.sweep import Summary, sweep
from experiments.scheduling.messages import Event, Note
from tests.experiments.fakes import FakeTraining

SOFTMAX = {
    "name": "beyond",
    "workload": "digits-softmax",
    "grid": {"batch_size": [128, 256], "optimizer": "sgd"},
    "trials": 8,
    "budget": "60 steps",
    "target": "validation_error < 0.12",
    "evaluation_ratio": 1.3,
    "engine": "stacked",
}


def run(root: Path, seen: list[Event] | None = None, **changes: Any) -> Summary:
    """Real trainings of a softmax regression, whose best rate is some 10."""
    of = load({**SOFTMAX, **changes})
    observer = seen.append if seen is not None else None
    return sweep(of, results=root, address="none", judge=edges, observer=observer)


def trials(root: Path) -> pd.DataFrame:
    return dataset.open(root).trials


def notes(seen: list[Event], text: str) -> list[str]:
    return [e.text for e in seen if isinstance(e, Note) and text in e.text]


@pytest.mark.slow
def test_a_space_three_decades_too_low_is_caught_and_mended(tmp_path: Path) -> None:
    low = {"learning_rate": {"log": [1e-5, 1e-2]}}
    with pytest.raises(ExperimentError, match="no study has reached"):
        run(tmp_path / "caught", search=low, trials=20)
    seen: list[Event] = []
    did = run(tmp_path / "mended", seen, search=low, extend=2)
    assert did.complete
    assert did.reached == 2
    assert len(notes(seen, "edge of its search space, learning_rate at its upper end: ")) >= 2
    found = trials(tmp_path / "mended")
    more = found[found["enlargement"] > 0]
    assert set(more["role"]) == {"extension"}
    assert more["learning_rate"].gt(1e-2).all()
    assert more["round"].gt(found.loc[found["enlargement"] == 0, "round"].max()).all()
    first = more[more["enlargement"] == 1]
    assert first["learning_rate"].le(10).all()
    assert first.groupby("study").size().tolist() == [8, 8]  # as densely as the space before
    best = found.loc[found.groupby("study")["steps_to_target"].idxmin()]
    assert best["learning_rate"].gt(0.05).all()  # without an upper end: the problem is convex
    studies = dataset.open(tmp_path / "mended").studies
    ends = [json.loads(space)["learning_rate"]["log"] for space in studies["search_space"]]
    assert all(low == 1e-5 and high >= 10 for low, high in ends)


@pytest.mark.slow
def test_what_only_diverges_wants_lower_rates_where_they_are_tuned(tmp_path: Path) -> None:
    lost: dict[str, Any] = {"target": "validation_error < 0.0001", "extend": 1, "keep": "off"}
    # So large a rate overflows within a few steps of momentum, whatever the momentum.
    tuned = {"learning_rate": {"log": [1e37, 1e38]}, "momentum": 0.9}
    fixed = {"learning_rate": 1e38, "momentum": {"linear": [0.5, 0.99]}}
    for name, search, more in (("tuned", tuned, {0, 1}), ("fixed", fixed, {0})):
        grid = {"batch_size": [256], "optimizer": "momentum"}
        did = run(tmp_path / name, **lost, grid=grid, search=search, trials=4)
        assert did.complete
        found = trials(tmp_path / name)
        assert found.loc[found["enlargement"] == 0, "status"].eq("INFEASIBLE").all()
        assert set(found["enlargement"]) == more


@pytest.mark.slow
def test_a_space_with_room_is_not_enlarged(tmp_path: Path) -> None:
    seen: list[Event] = []
    run(tmp_path, seen, search={"learning_rate": {"log": [1e-3, 1e4]}}, extend=2)
    assert not notes(seen, " beyond it.")
    assert set(trials(tmp_path)["enlargement"]) == {0}


@pytest.mark.slow
def test_the_best_trial_is_repeated_with_fresh_seeds(tmp_path: Path) -> None:
    rates: dict[str, Any] = {"search": {"learning_rate": {"log": [1e-2, 100]}}, "keep": 1}
    run(tmp_path / "plain", **rates)
    did = run(tmp_path / "repeated", **rates, repeats=5)
    assert did.complete
    plain, found = trials(tmp_path / "plain"), trials(tmp_path / "repeated")
    searched, again = found[found["role"] != "repeat"], found[found["role"] == "repeat"]
    assert set(searched["trial"]) == set(plain["trial"])
    assert again.groupby("study").size().tolist() == [5, 5]
    for study, group in again.groupby("study"):
        own = searched[searched["study"] == study]
        best = own.iloc[int(own["steps_to_target"].argmin())]
        assert set(group["metaparameters"]) == {best["metaparameters"]}
        assert best["seed"] not in set(group["seed"])
        assert group["seed"].nunique() == 5
    # None is stopped for being worse than the best, else their median would be too low.
    assert set(again["stop_reason"]) <= {"target", "budget"}
    assert again["steps_to_target"].max() > searched["steps_to_target"].min()
    assert run(tmp_path / "repeated", **rates, repeats=5).trained == 0


@pytest.mark.slow
def test_repeats_stop_nothing(tmp_path: Path) -> None:
    """Trials that are added later are judged by the search alone."""
    fake = {
        "search": {"learning_rate": {"linear": [0.05, 2.0]}},
        "budget": "100 steps",
        "target": "validation_error < 0.05",
        "engine": "auto",
        "keep": 2,
    }
    for name, repeats in (("with", 4), ("without", 0)):
        for count in (8, 24):
            of = load({**SOFTMAX, **fake, "repeats": repeats, "trials": count})
            sweep(of, results=tmp_path / name, address="none", trainer=FakeTraining)
    best = [
        found[found["role"] != "repeat"].groupby("study")["steps_to_target"].nsmallest(2).to_list()
        for found in (trials(tmp_path / name) for name in ("with", "without"))
    ]
    assert best[0] == best[1]
