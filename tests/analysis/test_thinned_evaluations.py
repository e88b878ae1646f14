"""Steps to target with every second evaluation dropped."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchscale as bs
import results
from analysis.curves import thinned_evaluations
from results.reader import Results
from results.store import Store
from results.targets.evaluations import Evaluations
from tests.analysis import plain_thinning

LOOKS = [1, 2, 4, 8, 16, 32]  # kept: 1, 4, 16


def frames(errors: dict[str, list[float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and measurements of validation error at the first looks; the target is < 0.5."""
    measured = pd.DataFrame(
        [
            {"study": "s", "trial": name, "step": step, "validation_error": error}
            for name, values in errors.items()
            for step, error in zip(LOOKS, values, strict=False)
        ]
    )
    rows = []
    for name, values in errors.items():
        first = next((i for i, value in enumerate(values) if value < 0.5), None)
        rows.append(
            {
                "study": "s",
                "trial": name,
                "target_metric": "validation_error",
                "target_value": 0.5,
                "lower_is_better": True,
                "steps_to_target": np.nan if first is None else LOOKS[first],
                "last_miss": np.nan if first is None else (LOOKS[first - 1] if first else 0),
                "steps_run": LOOKS[len(values) - 1] if first is None else LOOKS[first],
                "stop_reason": "budget" if first is None else "target",
            }
        )
    return pd.DataFrame(rows), measured


def every_second(trials: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    found = thinned_evaluations.every_second(trials, Evaluations.of_frame(measured))
    return trials if found is None else found


def after(errors: dict[str, list[float]]) -> list[tuple[float, float]]:
    trials = every_second(*frames(errors))
    return list(zip(trials["last_miss"], trials["steps_to_target"], strict=True))


def test_kept_looks_stay_and_dropped_ones_move_to_the_next() -> None:
    whole = {"miss": [0.9] * 6}
    assert after({"a": [0.9, 0.9, 0.1], **whole})[0] == (1, 4)
    assert after({"a": [0.9, 0.9, 0.9, 0.1], **whole, "b": [0.9] * 5 + [0.1]})[0] == (4, 16)
    assert after({"a": [0.1], "b": [0.9, 0.9, 0.1]})[0] == (0, 1)


def test_a_trial_that_was_trained_on_is_asked() -> None:
    # Lucky at 8, but a miss at 16: the next kept look that is better is 64.
    lucky = [0.9, 0.9, 0.9, 0.1, 0.9, 0.1]
    trials, measured = frames({"a": lucky, "b": [0.9] * 5 + [0.1]})
    more = pd.DataFrame([{"study": "s", "trial": "a", "step": 64, "validation_error": 0.1}])
    thinned = every_second(trials, pd.concat([measured, more]))
    assert list(thinned.loc[0, ["last_miss", "steps_to_target"]]) == [16, 64]


def test_trials_without_measurements_or_bracket_stay() -> None:
    trials, measured = frames({"a": [0.9, 0.1], "b": [0.9, 0.1], "c": [0.9, 0.9, 0.9]})
    trials.loc[1, "last_miss"] = np.nan
    thinned = every_second(trials, measured[measured["trial"] != "a"])
    assert thinned["steps_to_target"].tolist()[:2] == [2, 2]
    assert np.isnan(thinned["steps_to_target"][2])


def test_a_dominated_trial_counts_as_run_to_the_kept_look_that_follows() -> None:
    """It was not seen there, but cannot have reached the target before."""
    hits = {"a": [0.9, 0.1], "b": [0.9] * 5 + [0.1]}
    trials, measured = frames({**hits, "cut": [0.9, 0.9], "kept": [0.9] * 3, "far": [0.9] * 6})
    trials.loc[2:, "stop_reason"] = "dominated"
    thinned = every_second(trials, measured)
    assert thinned["steps_run"].tolist()[2:] == [4, 16, 64]
    assert thinned["steps_run"].tolist()[:2] == [2, 32]


def test_without_a_measured_bracket_there_is_nothing_to_drop() -> None:
    trials, measured = frames({"a": [0.9, 0.1], "b": [0.9, 0.9]})
    every = Evaluations.of_frame(measured)
    of_b = Evaluations.of_frame(measured[measured["trial"] == "b"])
    assert thinned_evaluations.every_second(trials, of_b) is None
    assert thinned_evaluations.every_second(trials.assign(last_miss=np.nan), every) is None


_GRID = [1, 2, 3, 5, 8, 13, 21, 34]
_ERROR = st.sampled_from([0.9, 0.5, 0.1, np.nan])
_TRIAL = st.fixed_dictionaries(
    {
        "study": st.sampled_from(["s", "t", None]),
        "metric": st.sampled_from(["validation_error", "validation_f1", None]),
        "errors": st.lists(_ERROR, max_size=8),
        "skip": st.integers(0, 3),
        "after": st.booleans(),
        "reason": st.sampled_from(["target", "budget", "dominated"]),
        "bracket": st.booleans(),
    }
)


def _made(plans: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials that went on after their target or did not, with looks of their own grids."""
    rows, points = [], []
    for number, plan in enumerate(plans):
        steps = _GRID[plan["skip"] :][: len(plan["errors"])]
        errors = plan["errors"][: len(steps)]
        first = next((i for i, value in enumerate(errors) if value < 0.5), None)
        own = {"study": plan["study"], "trial": f"t{number}"}
        last = len(steps) if first is None or plan["after"] else first + 1
        rows.append(
            {
                **own,
                "target_metric": plan["metric"],
                "target_value": 0.5,
                "lower_is_better": True,
                "steps_to_target": np.nan if first is None else steps[first],
                "last_miss": np.nan
                if first is None or not plan["bracket"]
                else (steps[first - 1] if first else 0),
                "steps_run": steps[last - 1] if last else np.nan,
                "stop_reason": plan["reason"],
            }
        )
        if plan["study"] is not None:
            looked = zip(steps[:last], errors, strict=False)
            points += [{**own, "step": step, "validation_error": value} for step, value in looked]
    names = ["study", "trial", "step", "validation_error"]
    return pd.DataFrame(rows), pd.DataFrame(points, columns=names)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_TRIAL, min_size=1, max_size=12), st.randoms())
def test_it_drops_what_the_plain_way_drops(plans: list[dict[str, Any]], random: Any) -> None:
    """In SQL, whatever the order of rows, and all at once from one frame."""
    trials, measured = _made(plans)
    places = list(range(len(measured)))
    random.shuffle(places)
    measured = measured.iloc[places].reset_index(drop=True)
    expected = plain_thinning.every_second(trials, measured)
    found = thinned_evaluations.every_second(trials, Evaluations.of_frame(measured))
    if found is None:
        assert expected["steps_to_target"].equals(trials["steps_to_target"].astype(float))
        found = trials
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def _dataset(root: Path) -> Results:
    """A curve of three batch sizes whose every trial first hits by luck at a dropped look."""
    store = Store(root)
    for size, goal in ((8, 34), (16, 21), (32, 13)):
        trials, points = [], []
        for number in range(4):
            own = {"trial": f"{size}-{number}", "study": f"s{size}"}
            for step in itertools.chain(_GRID, [55, 89]):
                lucky = number == 0 and step == _GRID[_GRID.index(goal) - 2]
                error = 0.1 if step >= goal or lucky else 0.9
                points.append({**own, "step": step, "metrics": {"validation_error": error}})
            trials.append(
                {
                    **own,
                    "workload": "w",
                    "batch_size": size,
                    "role": "search",
                    "index": number,
                    "status": "COMPLETE",
                    "stop_reason": "budget",
                    "stop_at_target": False,
                    "steps_run": 89,
                }
            )
        store.commit("e", measurements=points, trials=trials)
        store.add_studies([{"experiment": "e", "study": f"s{size}", "batch_size": size}])
    return results.open(root).with_target("validation_error < 0.5")


def test_a_results_folder_gives_what_a_frame_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _dataset(tmp_path / "runs")
    measured = run.read_measurements(["study", "trial", "step", "validation_error"])
    expected = plain_thinning.every_second(run.trials, measured)
    assert not expected["steps_to_target"].equals(run.trials["steps_to_target"])
    monkeypatch.setattr(Results, "read_measurements", None)
    thinned = thinned_evaluations.every_second(run.trials, Evaluations([run]))
    assert thinned is not None
    pd.testing.assert_frame_equal(thinned, expected)
    # The same of two folders that share out the trials, and of all that the commands do.
    parts = [run.with_trials(run.trial_rows.slice(at, 5)) for at in (0, 5, 10)]
    thinned = thinned_evaluations.every_second(run.trials, Evaluations(parts))
    assert thinned is not None
    pd.testing.assert_frame_equal(thinned, expected)
    (found,) = bs.open(tmp_path / "runs").regimes(target="validation_error < 0.5")
    assert found["batch_sizes"] == [8, 16, 32]


def test_a_superseded_row_is_no_look(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    row = {"trial": "a", "study": "s", "status": "COMPLETE"}
    for step in (3, 7):
        points = [{"trial": "a", "step": step, "metrics": {"validation_error": 0.5}}]
        store.commit("e", measurements=points, trials=[row])
    sql = "SELECT row, step, value FROM evaluations"
    measured = Evaluations([results.open(tmp_path / "runs")])
    found = measured.select(sql, {"trial": ["b", "a"]}, "validation_error")
    assert found.to_numpy().tolist() == [[1, 7, 0.5]]
    (plain,) = measured.select(sql, {"trial": ["a"]})["value"]
    assert plain is None or np.isnan(plain)
