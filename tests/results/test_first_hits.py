"""The one pass over batches against the plain way that sorts everything."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import results
from results.errors import ResultsError
from results.store import Store
from results.targets.evaluations import measured_metrics
from results.targets.first_hits import first_hits
from results.targets.retarget import steps_to_target
from results.targets.target import Target

_LOOK = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["old", "new"]),
    st.integers(0, 20),
    st.sampled_from([0.1, 0.3, 0.5, math.inf, math.nan]),
)


def _batches(
    looks: list[tuple[str, str, int, float]], cuts: list[int], *, text: bool, coded: bool
) -> list[pa.RecordBatch]:
    names, runs, steps, values = zip(*looks, strict=True) if looks else ((), (), (), ())
    cells = [f'{{"other":1,"validation_f1":{_json(value)}}}' for value in values]
    table = pa.table(
        {
            "trial": pa.array(names, pa.string()),
            "run": pa.array(runs, pa.string()),
            "step": pa.array(steps, pa.int64()),
            "metrics" if text else "validation_error": (
                pa.array(cells, pa.string()) if text else pa.array(values, pa.float64())
            ),
        }
    )
    if coded:
        for at in (0, 1):
            table = table.set_column(at, table.column_names[at], table[at].dictionary_encode())
    bounds = [0, *sorted(min(cut, len(looks)) for cut in cuts), len(looks)]
    parts = [table.slice(a, b - a) for a, b in pairwise(bounds)]
    return [batch for part in parts for batch in part.to_batches()]


def _json(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{value}"'


@given(
    st.lists(_LOOK, max_size=40, unique_by=lambda look: look[:3]),
    st.lists(st.integers(0, 40), max_size=4),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_it_finds_what_sorting_everything_finds(
    looks: list[tuple[str, str, int, float]],
    cuts: list[int],
    ordered: bool,
    lower: bool,
    text: bool,
) -> None:
    if ordered:
        looks = sorted(looks, key=lambda look: look[:3])
    metric = "validation_f1" if text else "validation_error"
    target = Target(metric=metric, value=0.3, lower_is_better=lower)
    # Of b the rows of an earlier commit count for nothing; c is not asked for, d has no rows.
    trials, runs = ["b", "a", "d"], ["new", "old", "new"]
    batches = _batches(looks, cuts, text=text, coded=lower)
    found = first_hits(batches, trials, runs, target)
    live = [look for look in looks if look[:2] in {("a", "old"), ("b", "new")}]
    frame = pd.DataFrame(live, columns=["trial", "run", "step", metric])
    slow = steps_to_target(frame, target).reindex(trials) if frame[metric].notna().any() else None
    for at, trial in enumerate(trials):
        own = [look for look in live if look[0] == trial and not math.isnan(look[3])]
        if found.scattered[at]:
            assert not ordered
            continue
        assert found.measured[at] == bool(own)
        expected = slow.loc[trial].to_numpy()[:2] if own and slow is not None else [np.nan, np.nan]
        np.testing.assert_array_equal([found.first[at], found.last_miss[at]], expected)


def _run(tmp_path: Path, looks: list[tuple[str, int, float | None]], **row: Any) -> results.Results:
    points = [
        {"trial": name, "step": step, "metrics": {"validation_error": value, "test_f1": 0.5}}
        for name, step, value in looks
    ]
    ended = {"status": "COMPLETE", "stop_reason": "budget", "study": "s", **row}
    trials = [{"trial": name, **ended} for name in dict.fromkeys(look[0] for look in looks)]
    Store(tmp_path / "runs").commit("e", measurements=points, trials=trials)
    return results.open(tmp_path / "runs")


def test_looks_that_lie_about_are_found_the_plain_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[str, int, float | None]] = [("a", 30, 0.1), ("b", 10, 0.5), ("b", 20, 0.2)]
    looks += [("a", 10, 0.4), ("a", 20, 0.25), ("a", 5, None)]
    monkeypatch.setattr("results.storage.dataset._ROW_GROUP", 3)
    run = _run(tmp_path, looks)
    assert [len(batch) for batch in run.source.measurements().to_batches()] == [3, 3]
    found = run.with_target("validation_error < 0.3").trials.set_index("trial")
    assert list(found.loc["a", ["steps_to_target", "last_miss"]]) == [20, 10]
    assert list(found.loc["b", ["steps_to_target", "last_miss"]]) == [20, 10]


def test_a_metric_that_nobody_measured_is_told_with_what_was(tmp_path: Path) -> None:
    run = _run(tmp_path, [("a", 1, 0.5), ("a", 2, None)])
    batches = run.source.measurements().to_batches()
    assert measured_metrics(batches) == ["validation_error", "test_f1"]
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


def test_a_metric_is_found_in_text_by_its_key_alone() -> None:
    texts = ['{"a":1,"validation_f1":"nan"}', '{"validation_f1":0.1}', '{"validation_f1_x":0.1}']
    texts += [json.dumps({"other": '"validation_f1":0.1'}), '{"validation_f1": 2e-1 , "a":1}']
    columns = {"trial": list("abcde"), "run": ["r"] * 5, "step": [1] * 5, "metrics": texts}
    target = Target(metric="validation_f1", value=0.3)
    found = first_hits(pa.table(columns).to_batches(), list("abcde"), ["r"] * 5, target)
    assert found.measured.tolist() == [False, True, False, False, True]
    assert found.first.tolist()[1::3] == [1, 1]


def test_another_key_is_another_metric_and_null_is_none() -> None:
    """A dot in a name is a dot: ``bleu-4`` is not ``bleu.4``."""
    texts = ['{"bleu-4":0.1,"bleu.4":0.5}', '{"bleuX4":0.1}', '{"bleu.4":null}', '{"bleu.4":0.2}']
    columns = {"trial": list("abcd"), "run": ["r"] * 4, "step": [1] * 4, "metrics": texts}
    target = Target(metric="bleu.4", value=0.3)
    found = first_hits(pa.table(columns).to_batches(), list("abcd"), ["r"] * 4, target)
    assert found.measured.tolist() == [True, False, False, True]
    assert np.isnan(found.first[:3]).all()
    assert found.first[3] == 1
