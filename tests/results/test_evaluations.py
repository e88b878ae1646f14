"""What SQL makes of many evaluations, against plain Python that reads them row by row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import results
from results.errors import ResultsError
from results.reader import Results
from results.schema import table
from results.storage.source import Memory
from results.store import Store
from results.targets.evaluations import Evaluations
from results.targets.target import Target
from tests.results.partial_rows import partial, whole
from tests.results.plain_brackets import bracket

_VALUES = [0.1, 0.3, 0.5, math.inf, math.nan]


def _random(seed: int, metric: str) -> list[dict[str, Any]]:
    """Measurements of trials a0, a1 … of the runs old and new, in any order, some of them of a part
    of their split, about this metric or another one."""
    random = np.random.default_rng(seed)
    rows = []
    for trial in range(60):
        for run in ("old", "new"):
            for step in random.choice(20, random.integers(0, 12), replace=False).tolist():
                row = whole(float(random.choice(_VALUES)), metric=metric)
                if random.random() < 0.4:
                    low, high = random.choice([0.0, 0.3, math.nan]), random.choice([0.3, 0.6])
                    about = str(random.choice([metric, "validation_loss"], p=[0.8, 0.2]))
                    row = partial(0.3, float(low), float(high), about=about, metric=metric)
                rows.append({"trial": f"a{trial}", "run": run, "step": step, **row})
    random.shuffle(rows)
    return rows


def _opened(rows: list[dict[str, Any]], runs: dict[str, str]) -> Results:
    trials = [{"trial": name, "run": run} for name, run in runs.items()]
    tables = {"trials": table("trials", trials), "measurements": table("measurements", rows)}
    return Results("made up", Memory(tables))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("metric", ["validation_error", "validation_f1"])
def test_brackets_are_those_of_plain_python(seed: int, lower: bool, metric: str) -> None:
    rows = _random(seed, metric)
    # Rows of another commit count for nothing, as do those of trials that are not asked for.
    runs = {f"a{number}": ("old", "new")[number % 2] for number in range(65)}
    names = [name for name in runs if name != "a7"]
    target = Target(metric=metric, value=0.3, lower_is_better=lower)
    opened = _opened(rows, runs)
    goals = {"goal": [0.3] * len(names), "lower_is_better": [lower] * len(names)}
    found = Evaluations([opened]).brackets({"trial": names, **goals}, metric)
    for name, row in zip(names, found.to_dict("records"), strict=True):
        own = [each for each in rows if (each["trial"], each["run"]) == (name, runs[name])]
        expected = bracket(own, target)
        answer = [row[column] for column in ("hit", "miss", "undecided", "measured")]
        np.testing.assert_array_equal(answer, expected, err_msg=name)
    assert found["hit"].notna().sum() > 10
    assert (found["undecided"] > 0).sum() > 5


def test_several_datasets_are_one() -> None:
    first = _opened([{"trial": "a", "run": "r", "step": 2, **whole(0.5)}], {"a": "r"})
    second = _opened(
        [{"trial": name, "run": "r", "step": 1, **whole(0.7)} for name in "ab"],
        {"a": "r", "b": "r"},
    )
    sql = (
        "SELECT row, min(value) AS least, count(*) AS n FROM evaluations GROUP BY row ORDER BY row"
    )
    answer = Evaluations([first, second]).select(
        sql, {"trial": ["b", "a", "c"]}, "validation_error"
    )
    assert answer.to_numpy().tolist() == [[0, 0.7, 1], [1, 0.5, 2]]


def _run(tmp_path: Path, looks: list[tuple[str, int, float | None]], **row: Any) -> results.Results:
    points = [
        {"trial": name, "step": step, "metrics": {"validation_error": value, "test_f1": 0.5}}
        for name, step, value in looks
    ]
    ended = {"status": "COMPLETE", "stop_reason": "budget", "study": "s", **row}
    trials = [{"trial": name, **ended} for name in dict.fromkeys(look[0] for look in looks)]
    Store(tmp_path / "runs").commit("e", measurements=points, trials=trials)
    return results.open(tmp_path / "runs")


def test_evaluations_may_be_in_any_order(tmp_path: Path) -> None:
    looks: list[tuple[str, int, float | None]] = [("a", 30, 0.1), ("b", 10, 0.5), ("b", 20, 0.2)]
    looks += [("a", 10, 0.4), ("a", 20, 0.25), ("a", 5, None)]
    run = _run(tmp_path, looks)
    found = run.with_target("validation_error < 0.3").trials.set_index("trial")
    assert list(found.loc["a", ["steps_to_target", "last_miss"]]) == [20, 10]
    assert list(found.loc["b", ["steps_to_target", "last_miss"]]) == [20, 10]


def test_a_metric_that_nobody_measured_is_told_with_what_was(tmp_path: Path) -> None:
    run = _run(tmp_path, [("a", 1, 0.5), ("a", 2, None)])
    assert Evaluations([run]).metrics() == ["validation_error", "test_f1"]
    with pytest.raises(ResultsError, match="no measurement has the metric 'test_f2'") as caught:
        run.with_target("test_f2 > 0.4")
    assert caught.value.hint == "did you mean test_f1?"
    with pytest.raises(ResultsError, match="no measurement has the metric 'test_error'"):
        run.with_target("test_error < 0.4")


def test_each_experiment_has_its_own_target(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    for name in ("x", "y", "z"):
        points = [
            {"trial": name, "step": step, "metrics": {"validation_error": 1 / step}}
            for step in range(1, 9)
        ]
        row = {"trial": name, "status": "COMPLETE", "stop_reason": "budget"}
        store.commit(name, measurements=points, trials=[row])
    run = results.open(tmp_path / "runs")
    easy = Target(metric="validation_error", value=0.3)
    both = run.with_target({"z": "validation_error < 0.2", "x": easy}).trials
    assert both.trial.tolist() == ["x", "z"]
    assert both.steps_to_target.tolist() == [4, 6]
    assert both.target_value.tolist() == [0.3, 0.2]
    assert both.last_miss.tolist() == [3, 5]
    assert run.with_target({}).trials.empty
    with pytest.raises(ResultsError, match="no trial of an experiment 'yy'") as caught:
        run.with_target({"yy": easy})
    assert caught.value.hint == "did you mean y?"


@pytest.mark.parametrize("status", ["COMPLETE", "INFEASIBLE", "INCOMPLETE"])
def test_what_others_published_keeps_its_status(tmp_path: Path, status: str) -> None:
    reason = {"COMPLETE": "budget", "INFEASIBLE": "diverged", "INCOMPLETE": "error"}[status]
    looks: list[tuple[str, int, float | None]] = [("a", 1, 0.5), ("a", 2, 0.1)]
    own = _run(tmp_path / "own", looks, status=status, stop_reason=reason)
    found = own.with_target("validation_error < 0.3").trials.iloc[0]
    assert (found.status, found.steps_to_target) == ("COMPLETE", 2)
    other = _run(tmp_path / "other", looks, status=status, stop_reason=reason, source="them")
    found = other.with_target("validation_error < 0.3").trials.iloc[0]
    assert found.status == status
    assert (found.steps_to_target == 2) == (status == "COMPLETE")


def test_a_part_reads_the_files_of_its_experiments_alone(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for name in ("x", "y"):
        points = [{"trial": name, "step": 1, "metrics": {"validation_error": 0.1}}]
        row = {"trial": name, "status": "COMPLETE", "stop_reason": "budget"}
        Store(root).commit(name, measurements=points, trials=[row])
    part = results.open(root).where("experiment = 'x'")
    (file,) = (root / "measurements" / "y").iterdir()
    file.write_bytes(b"broken")
    assert part.with_target("validation_error < 0.3").trials.steps_to_target.tolist() == [1]
    assert len(part.read_measurements()) == 1
    file.unlink()
    # A folder under another name than its experiment's is still read.
    (root / "measurements" / "x").rename(root / "measurements" / "renamed")
    assert len(results.open(root).where("experiment = 'x'").read_measurements()) == 1


@pytest.mark.parametrize("name", ["runs", "runs[1]", "ru*", "it's"])
def test_any_name_of_a_folder_is_read(tmp_path: Path, name: str) -> None:
    run = _run(tmp_path / name, [("a", 1, 0.5), ("a", 2, 0.1)])
    assert run.with_target("validation_error < 0.3").trials.steps_to_target.tolist() == [2]


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    run = _run(tmp_path, [("a", step, 1 / step) for step in range(1, 2000)])
    (file,) = (tmp_path / "runs" / "measurements" / "e").iterdir()
    content = bytearray(file.read_bytes())
    content[4:2000] = bytes(1996)  # its footer is whole
    file.write_bytes(content)
    with pytest.raises(ResultsError, match="measurements is not all whole Parquet files"):
        run.with_target("validation_error < 0.3")


def test_a_folder_without_measurements_has_no_evaluations(tmp_path: Path) -> None:
    trials = [{"trial": "a", "study": "s"}]
    Store(tmp_path / "runs").commit("e", measurements=[], trials=trials)
    opened = Evaluations([results.open(tmp_path / "runs")])
    goals = {"goal": [0.3], "lower_is_better": [True]}
    assert opened.brackets({"trial": ["a"], **goals}, "validation_error")["hit"].isna().all()
    assert opened.metrics() == []


def _brackets(texts: list[str], metric: str) -> Any:
    names = list("abcde")[: len(texts)]
    rows = [
        {"trial": name, "run": "r", "step": 1, "metrics": text}
        for name, text in zip(names, texts, strict=True)
    ]
    goals = {"goal": [0.3] * len(texts), "lower_is_better": [True] * len(texts)}
    opened = _opened(rows, dict.fromkeys(names, "r"))
    return Evaluations([opened]).brackets({"trial": names, **goals}, metric)


def test_a_metric_is_found_in_text_by_its_key_alone() -> None:
    texts = ['{"a":1,"validation_f1":"nan"}', '{"validation_f1":0.1}', '{"validation_f1_x":0.1}']
    texts += [json.dumps({"other": '"validation_f1":0.1'}), '{"validation_f1": 2e-1 , "a":1}']
    found = _brackets(texts, "validation_f1")
    assert found["measured"].tolist() == [False, True, False, False, True]
    assert found["hit"].tolist()[1::3] == [1, 1]
    assert not _brackets(['{"validation_f1":0.1', "", "[1]"], "validation_f1")["measured"].any()


@pytest.mark.parametrize("name", ["bleu.4", "bleu/4", "bleu'4", 'ble"u', "$", "b~1"])
def test_another_key_is_another_metric_and_null_is_none(name: str) -> None:
    """A dot in a name is a dot: ``bleu-4`` is not ``bleu.4``."""
    cells: list[dict[str, Any]] = [{"bleu-4": 0.1, name: 0.5}, {"bleuX4": 0.1}]
    cells += [{name: None}, {name: 0.2}]
    found = _brackets([json.dumps(each) for each in cells], name)
    assert found["measured"].tolist() == [True, False, False, True]
    assert np.isnan(found["hit"][:3]).all()
    assert found["hit"][3] == 1
