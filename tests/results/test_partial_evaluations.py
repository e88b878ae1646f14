"""Evaluations that ended after a part of their split: what they decide about another target."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results.errors import ResultsError
from results.reader import Results
from results.schema import INTERVAL_COLUMNS, table
from results.storage.dataset import encode
from results.storage.source import Memory
from results.store import Store
from results.targets.evaluations import Evaluations
from results.targets.retarget import measured_steps
from results.targets.target import Target
from tests.results.partial_rows import EXAMPLES, evaluated, partial, whole
from tests.results.plain_brackets import bracket

Rows = dict[str, list[dict[str, Any]]]
"""Columns of measurements of each trial, at the steps 1, 2, 3 …"""


def measurements(rows: Rows) -> pa.Table:
    points = [
        {"experiment": "e", "trial": trial, "run": "r", "step": step, **columns}
        for trial, evaluations in rows.items()
        for step, columns in enumerate(evaluations, 1)
    ]
    return table("measurements", points)


def both(rows: Rows, target: Target) -> pd.DataFrame:
    """The answer of SQL, which is that of plain Python."""
    measured = measurements(rows)
    trials = table("trials", [{"trial": name, "run": "r"} for name in rows])
    opened = Results("made up", Memory({"trials": trials, "measurements": measured}))
    found = measured_steps(opened, rows, target)
    for name, evaluations in rows.items():
        plain = bracket(({"step": n, **row} for n, row in enumerate(evaluations, 1)), target)
        row = found.loc[name]
        answer = row["steps_to_target"], row["last_miss"], row["undecided_evaluations"]
        np.testing.assert_array_equal(answer, plain[:3], err_msg=name)
    return found


def of_one(evaluations: list[dict[str, Any]], text: str) -> list[float]:
    """Last miss, first hit and undecided evaluations of one trial."""
    (row,) = both({"a": evaluations}, Target.parse(text)).to_dict("records")
    return [row["last_miss"], row["steps_to_target"], row["undecided_evaluations"]]


MISS, OPEN, HIT = partial(0.7, 0.6, 0.8), partial(0.5, 0.4, 0.6), partial(0.3, 0.2, 0.4)


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        ([MISS, HIT], [1, 2, 0]),
        ([MISS, OPEN, HIT], [1, 3, 1]),
        ([OPEN, whole(0.4)], [0, 2, 1]),
        # A miss after one that may have been a hit does not make the bracket narrow again.
        ([MISS, OPEN, MISS, OPEN, whole(0.4), OPEN], [1, 5, 2]),
        ([whole(0.5), whole(0.4)], [1, 2, 0]),
        # The better end at the target is a miss, the worse end at it no hit: strictly better.
        ([partial(0.6, 0.5, 0.8), partial(0.4, 0.3, 0.5), whole(0.4)], [1, 3, 1]),
        # Bounds of another metric, or none at all.
        ([partial(0.3, 0.2, 0.4, about="validation_loss"), HIT], [0, 2, 1]),
        ([MISS, partial(0.3, -math.inf, math.inf), HIT], [1, 3, 1]),
        ([partial(0.7, 0.6, None), partial(0.3, None, 0.4)], [1, 2, 0]),
        ([MISS, partial(0.3, None, None), HIT], [1, 3, 1]),
        # No value of the metric: nothing was evaluated.
        ([MISS, partial(0.3, 0.2, 0.4, metric="validation_loss"), HIT], [1, 3, 0]),
        ([MISS, OPEN, MISS], [math.nan, math.nan, 1]),
    ],
)
def test_a_part_decides_by_its_interval(
    evaluations: list[dict[str, Any]], expected: list[float]
) -> None:
    np.testing.assert_array_equal(of_one(evaluations, "validation_error < 0.5"), expected)


def test_where_higher_is_better_the_ends_change_places() -> None:
    name = "validation_f1"
    rows = [
        partial(0.3, 0.2, 0.5, about=name, metric=name),
        partial(0.5, 0.4, 0.6, about=name, metric=name),
        partial(0.7, 0.51, 0.8, about=name, metric=name),
    ]
    assert of_one(rows, "validation_f1 > 0.5") == [1, 3, 1]


def simulated(curves: int) -> tuple[Rows, Rows]:
    """Learning curves that are evaluated on all examples, and until a miss of an error of 0.2 is
    certain; each ends where it hits that, or at its budget, with all examples."""
    random = np.random.default_rng(36)
    full: Rows = {}
    early: Rows = {}
    for trial in range(curves):
        steps = int(random.integers(5, 40))
        mean = 0.9 * np.exp(-np.arange(steps) / random.uniform(5, 30)) + random.uniform(0.05, 0.3)
        wrong = random.binomial(EXAMPLES, np.clip(mean + random.normal(0, 0.05, steps), 0, 1))
        hits = np.flatnonzero(wrong < 0.2 * EXAMPLES)
        wrong = wrong[: hits[0] + 1] if len(hits) else wrong
        full[str(trial)] = [whole(each / EXAMPLES) for each in wrong]
        parts = [evaluated(random, each, 0.2) for each in wrong[:-1].tolist()]
        early[str(trial)] = [*parts, full[str(trial)][-1]]
    return full, early


def test_brackets_hold_the_steps_of_full_evaluations() -> None:
    full, early = simulated(300)
    saved = [row for rows in early.values() for row in rows if "interval_metric" in row]
    assert len(saved) > 1000
    asked = Target(metric="validation_error", value=0.2)
    pd.testing.assert_frame_equal(both(full, asked), both(early, asked))
    exactly, narrow = [], []
    for value in (0.25, 0.3, 0.4, 0.5, 0.7):
        target = Target(metric="validation_error", value=value)
        exact, found = both(full, target), both(early, target)
        decided = found["undecided_evaluations"].eq(0)
        pd.testing.assert_frame_equal(exact[decided], found[decided])
        hit = found["steps_to_target"].notna()
        assert (found["last_miss"] < exact["steps_to_target"])[hit].all()
        assert (exact["steps_to_target"] <= found["steps_to_target"])[hit].all()
        exactly.append(decided.mean())
        narrow.append((found["last_miss"] > 0).mean())
    assert 0 < np.mean(exactly) < 1
    assert np.mean(narrow) > 0.1


def run_of(tmp_path: Path, rows: Rows, **row: Any) -> results.Results:
    points = measurements(rows).drop_columns(["run", "experiment"]).to_pylist()
    ended = {
        "status": "COMPLETE", "stop_reason": "target", "study": "s", "stop_at_target": True,
        "batch_size": 8,
        "target_metric": "validation_error", "target_value": 0.2, "lower_is_better": True, **row,
    }  # fmt: skip
    trials = [{"trial": name, "steps_run": len(each), **ended} for name, each in rows.items()]
    Store(tmp_path / "runs").commit("e", measurements=points, trials=trials)
    return results.open(tmp_path / "runs")


def test_trials_say_how_many_evaluations_are_undecided(tmp_path: Path) -> None:
    rows = {"a": [MISS, OPEN, whole(0.1)], "b": [MISS, HIT, whole(0.1)]}
    opened = run_of(tmp_path, rows)
    again = opened.with_target("validation_error < 0.5")
    found = again.trials.set_index("trial")
    assert list(found.loc["a", ["last_miss", "steps_to_target"]]) == [1, 3]
    assert found["undecided_evaluations"].tolist()[0] == 1
    assert found["undecided_evaluations"].isna().tolist() == [False, True]
    wider = again.with_target("validation_error < 0.65").trials
    assert wider["undecided_evaluations"].tolist() == [1, 1]
    assert wider["steps_to_target"].tolist() == [2, 2]
    slow = measured_steps(opened, ["a"], Target.parse("validation_error < 0.5"))
    assert list(slow.loc["a"]) == [3, 1, 1]


def test_a_file_of_before_these_columns_is_whole(tmp_path: Path) -> None:
    opened = run_of(tmp_path, {"a": [whole(0.7), whole(0.1)]})
    (file,) = (tmp_path / "runs" / "measurements" / "e").iterdir()
    older = pq.read_table(file).drop_columns(["evaluated_examples", *INTERVAL_COLUMNS])
    file.write_bytes(encode(older))
    again = opened.with_target("validation_error < 0.5").trials
    assert again["steps_to_target"].tolist() == [2]
    sql = "SELECT value, low, high, partial FROM evaluations ORDER BY step"
    found = Evaluations([opened]).select(sql, {"trial": ["a"]}, "validation_error")
    assert found.to_numpy().tolist() == [[0.7, 0.7, 0.7, False], [0.1, 0.1, 0.1, False]]


def test_compaction_and_sql_keep_the_columns(tmp_path: Path) -> None:
    from results.storage.compact import compact

    opened = run_of(tmp_path, {"a": [MISS, OPEN, whole(0.1)]})
    before = opened.measurements
    assert opened.location is not None
    compact(opened.location, "e")
    pd.testing.assert_frame_equal(results.open(tmp_path / "runs").measurements, before)
    sql = "SELECT count(*) AS n FROM measurements WHERE interval_metric IS NULL"
    assert opened.query(sql)["n"].tolist() == [1]


def test_an_export_has_the_means(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from results.exports.tensorboard import export_tensorboard

    opened = run_of(tmp_path, {"a": [MISS, OPEN, whole(0.1)]})
    export_tensorboard(opened, tmp_path / "events")
    (file,) = (tmp_path / "events" / "e").rglob("*tfevents*")
    read = EventAccumulator(str(file.parent)).Reload()
    values = [event.value for event in read.Scalars("validation/error")]
    assert values == pytest.approx([0.7, 0.5, 0.1])


def test_a_row_that_gets_another_target_keeps_their_number(tmp_path: Path) -> None:
    from experiments.records.amend import retarget

    rows = {"a": [MISS, OPEN, whole(0.1)], "b": [MISS, HIT, whole(0.1)], "c": []}
    run_of(tmp_path, rows)
    target = Target.parse("validation_error < 0.5")
    assert retarget(Store(tmp_path / "runs"), "e", target, [*rows]) == 3
    found = results.open(tmp_path / "runs").trials.set_index("trial")["undecided_evaluations"]
    assert found["a"] == 1
    assert found[["b", "c"]].isna().all()


def test_a_table_of_parts_is_refused_and_one_of_whole_evaluations_is_read(tmp_path: Path) -> None:
    opened = run_of(tmp_path, {"a": [MISS, whole(0.4), whole(0.1)]})
    table = tmp_path / "curves.csv"
    sql = "SELECT t.batch_size, m.* EXCLUDE (experiment, study, trial, run) FROM measurements AS m "
    rows = opened.query(sql + "JOIN trials AS t USING (trial) ORDER BY step")
    rows.to_csv(table, index=False)
    with pytest.raises(ResultsError, match="line 2: a mean over a part of a split") as caught:
        results.open(table)
    assert caught.value.hint == "leave such rows out: WHERE interval_metric IS NULL"
    rows[rows["interval_metric"].isna()].to_csv(table, index=False)
    found = results.open(table).with_target("validation_error < 0.5").trials
    assert found[["last_miss", "steps_to_target"]].to_numpy().tolist() == [[0, 2]]
