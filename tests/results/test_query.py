"""SQL: what it answers, what it says of an error, and all that it may not do."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

import results
from results.errors import ResultsError
from results.reader import Results
from results.store import Store


@pytest.fixture
def run(folder: Path) -> Results:
    return results.open(folder)


def test_an_answer(run: Results) -> None:
    found = run.query(
        "SELECT optimizer, batch_size, min(steps_to_target) AS best, count(*) AS n FROM trials "
        "WHERE width = 64 GROUP BY ALL ORDER BY ALL"
    )
    assert found.best.tolist() == [8.0] * 6
    assert found.n.tolist() == [4] * 6
    assert found.optimizer.tolist() == ["adam"] * 3 + ["sgd"] * 3


def test_the_four_tables(run: Results) -> None:
    for name, rows in {"studies": 12, "trials": 48, "measurements": 300, "sources": 0}.items():
        assert run.query(f"FROM {name} SELECT count(*) AS n").n[0] == rows
    found = run.query(
        "SELECT max(validation_error) AS worst, max((metrics ->> 'validation_top5')::DOUBLE) top "
        "FROM measurements JOIN trials USING (trial) WHERE status = 'COMPLETE'"
    )
    assert found.worst[0] == 0.9
    assert found.top[0] == 0.9


def test_times_and_seeds_are_exact(run: Results) -> None:
    found = run.query("SELECT max(time) AS last, max(seed) AS seed FROM trials")
    assert found["last"][0] == run.trials.time.max()
    assert int(found.seed[0]) == 2**62 + 3


def test_sql_sees_the_rows_that_count(folder: Path) -> None:
    Store(folder).commit(
        "synthetic",
        measurements=[{"trial": "digits-mlp-sgd-8-0", "step": 1}],
        trials=[{"trial": "digits-mlp-sgd-8-0", "study": "digits-mlp-sgd-8"}],
    )
    run = results.open(folder)
    assert run.query("SELECT count(*) AS n FROM trials").n[0] == 48
    assert run.query("SELECT count(*) AS n FROM measurements").n[0] == 300 - 4 + 1


def test_where(run: Results) -> None:
    part = run.where("width = 64 AND optimizer = 'sgd' -- my comment")
    assert (len(part.trials), len(part.studies), len(part.measurements)) == (12, 3, 75)
    assert part.query("SELECT count(*) AS n FROM measurements").n[0] == 75
    assert len(part.where("batch_size > 8").trials) == 8
    assert len(run.where("width = 65").measurements) == 0
    late = "trial IN (SELECT trial FROM measurements WHERE step > 14)"
    assert len(run.where(late).trials) == 12


_REFUSED = {
    "COPY (SELECT 1) TO 'out.csv'": "COPY is not one SELECT",
    "COPY trials TO 'out.parquet'": "COPY is not one SELECT",
    "EXPORT DATABASE 'out'": "EXPORT is not one SELECT",
    "ATTACH 'out.db'": "ATTACH is not one SELECT",
    "INSTALL httpfs": "LOAD is not one SELECT",
    "LOAD httpfs": "LOAD is not one SELECT",
    "CREATE TABLE x AS SELECT 1": "CREATE is not one SELECT",
    "CREATE MACRO f(a) AS a": "CREATE",
    "INSERT INTO trials SELECT * FROM trials": "INSERT is not one SELECT",
    "UPDATE trials SET seed = 1": "UPDATE is not one SELECT",
    "DELETE FROM trials": "DELETE is not one SELECT",
    "DROP VIEW measurements": "DROP is not one SELECT",
    "SET enable_external_access = true": "SET is not one SELECT",
    "RESET enable_external_access": "is not one SELECT",
    "PRAGMA threads = 1": "is not one SELECT|locked",
    "CALL enable_logging(storage = 'file', storage_path = 'out')": "CALL is not one SELECT",
    "PREPARE p AS SELECT 1": "PREPARE is not one SELECT",
    "EXPLAIN ANALYZE SELECT 1": "EXPLAIN is not one SELECT",
    "CHECKPOINT": "is not one SELECT",
    "SELECT 1; SELECT 2": "SELECT, SELECT is not one SELECT",
    "SELECT 1; COPY trials TO 'out.csv'": "SELECT, COPY is not one SELECT",
    "": "nothing is not one SELECT",
    "SELECT * FROM 'in.csv'": "no file or address",
    "SELECT * FROM 'https://example.org/in.parquet'": "no file or address",
    "SELECT * FROM read_csv('in.csv')": "no file or address",
    "SELECT * FROM read_parquet('trials/*/*.parquet')": "no file or address",
    "SELECT * FROM read_text('/etc/hostname')": "no file or address",
    "SELECT * FROM read_blob('/etc/hostname')": "no file or address",
    "SELECT * FROM glob('*')": "no file or address",
    "SELECT * FROM query('COPY trials TO ''out.csv''')": "Expected a single SELECT",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = 'out')": "locked|not exist",
    "SELECT * FROM enable_profiling(save_location = 'out.json')": "locked|not exist",
    "SELECT * FROM secret": "Table with name secret does not exist",
    "SELECT getenv('HOME')": "getenv",
}


@pytest.mark.parametrize("sql", _REFUSED)
def test_sql_can_do_nothing_but_read_the_results(
    run: Results, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = pd.DataFrame({"a": [1]})  # a Python variable that a replacement scan would find
    here = tmp_path / "here"
    here.mkdir()
    (here / "in.csv").write_text("a\n1\n")
    monkeypatch.chdir(here)
    with pytest.raises(ResultsError, match=_REFUSED[sql]) as caught:
        run.query(sql)
    assert "\n" not in str(caught.value)
    assert os.listdir(here) == ["in.csv"]
    assert len(secret) == 1
    assert len(results.open(run.root).trials) == 48


@pytest.mark.parametrize(
    ("sql", "says", "hint"),
    [
        ("SELECT batchsize FROM trials", 'column "batchsize" not found', "batch_size"),
        ("SELECT t.optimiser FROM trials t", '"optimiser"', "optimizer"),
        ("SELECT widht FROM studies", 'column "widht" not found', "width"),
        ("SELECT * FROM trial", "Table with name trial does not exist", "trials"),
        ("SELECT medain(step) FROM measurements", "medain does not exist", "median"),
        ("SELEC 1", 'syntax error at or near "SELEC"', None),
        ("SELECT sum(trial) FROM trials", "No function matches", None),
    ],
)
def test_an_error_is_one_line_with_the_nearest_name(
    run: Results, sql: str, says: str, hint: str | None
) -> None:
    with pytest.raises(ResultsError) as caught:
        run.query(sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint == (f"did you mean {hint}?" if hint else None)


@pytest.mark.parametrize("condition", ["widht = 64", "width = ", "width = 'wide'", "1) FROM x --"])
def test_a_bad_condition_is_one_line(run: Results, condition: str) -> None:
    with pytest.raises(ResultsError) as caught:
        run.where(condition)
    assert "\n" not in str(caught.value)
