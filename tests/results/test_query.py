"""SQL: what it answers, what it says of an error, and all that it may not do."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

import results
from results import session
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
    "INSTALL httpfs FROM 'https://example.org'": "LOAD is not one SELECT",
    "FORCE INSTALL httpfs": "LOAD is not one SELECT",
    "LOAD '/tmp/evil.duckdb_extension'": "LOAD is not one SELECT",
    "ATTACH '/etc/passwd' AS x": "ATTACH is not one SELECT",
    "ATTACH 'https://example.org/x.db'": "ATTACH is not one SELECT",
    "DETACH memory": "DETACH is not one SELECT",
    "USE memory": "is not one SELECT",
    "IMPORT DATABASE 'out'": "is not one SELECT|no file",
    "COPY trials FROM '/etc/passwd'": "COPY is not one SELECT",
    "COPY FROM DATABASE memory TO memory": "is not one SELECT",
    "CREATE SECRET s (TYPE s3)": "is not one SELECT",
    "CREATE VIEW trials AS SELECT 1": "CREATE is not one SELECT",
    "ALTER TABLE trials ADD COLUMN x INT": "ALTER is not one SELECT",
    "TRUNCATE trials": "is not one SELECT",
    "MERGE INTO trials USING studies ON true WHEN MATCHED THEN DELETE": "is not one SELECT",
    "BEGIN TRANSACTION": "is not one SELECT",
    "VACUUM": "is not one SELECT",
    "ANALYZE": "is not one SELECT",
    "DEALLOCATE p": "is not one SELECT",
    "COMMENT ON VIEW measurements IS 'x'": "is not one SELECT",
    "SET memory_limit = '1TB'": "SET is not one SELECT",
    "SET GLOBAL allow_unsigned_extensions = true": "SET is not one SELECT",
    "PRAGMA enable_external_access = true": "is not one SELECT|locked",
    "PRAGMA database_list": "is not one SELECT",
    "UPDATE EXTENSIONS": "is not one SELECT",
    "SELECT * FROM '/etc/passwd'": "no file or address|does not exist",
    "SELECT * FROM read_csv('/etc/passwd', sep = ':', header = false)": "no file or address",
    "SELECT * FROM read_csv_auto('/etc/passwd')": "no file or address",
    "SELECT * FROM sniff_csv('/etc/passwd')": "no file or address",
    "SELECT * FROM read_json('/etc/passwd')": "no file or address|does not exist|json",
    "SELECT * FROM read_ndjson_objects('/etc/passwd')": "no file or address|does not exist|json",
    "SELECT * FROM parquet_metadata('/etc/passwd')": "no file or address",
    "SELECT * FROM parquet_schema('/etc/passwd')": "no file or address",
    "SELECT * FROM read_csv('https://example.org/x.csv')": "no file or address",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')": "no file or address",
    "SELECT * FROM 'hf://datasets/x/y.csv'": "no file or address",
    "SELECT * FROM read_text('/proc/self/environ')": "no file or address",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))": "no file or address",
    "WITH x AS (FROM read_text('/etc/passwd')) FROM x": "no file or address",
    "SELECT * FROM query_table('/etc/passwd')": "no file or address|does not exist",
    "WITH x AS (DELETE FROM trials RETURNING *) FROM x": "SQL",
    "FROM (COPY trials TO 'out.csv')": "SQL",
    "SELECT * FROM trials INTO OUTFILE 'out.csv'": "SQL",
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


_CONDITIONS = {
    "true); COPY trials TO 'out.csv'; --": "is not one SELECT|syntax error",
    "true); ATTACH 'out.db'; --": "is not one SELECT|syntax error",
    "true); INSTALL httpfs; SELECT (1": "is not one SELECT",
    "true); SET memory_limit = '1TB'; SELECT (1": "is not one SELECT",
    "trial IN (SELECT content FROM read_text('/etc/passwd'))": "no file or address",
    "(SELECT count(*) FROM read_csv('/etc/passwd', sep = ':')) > 0": "no file or address",
    "true) UNION SELECT content FROM read_text('/etc/passwd') --": "no file or address|SQL",
    "(SELECT count(*) FROM glob('/*')) > 0": "no file or address",
    "getenv('HOME') LIKE '/r%'": "getenv",
    "trial IN (SELECT value FROM duckdb_secrets())": "SQL",
}


@pytest.mark.parametrize("condition", _CONDITIONS)
def test_a_condition_can_do_no_more(
    run: Results, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ResultsError, match=_CONDITIONS[condition]) as caught:
        run.where(condition)
    assert "root:" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == before
    assert len(results.open(run.root).trials) == 48


def test_the_session_of_a_query_is_locked(run: Results) -> None:
    with pytest.raises(ResultsError):
        run.query("FROM duckdb_secrets()")
    asked = "SELECT name, value FROM duckdb_settings() WHERE name IN "
    settings = run.query(
        f"{asked} ('enable_external_access', 'lock_configuration', 'python_enable_replacements')"
    )
    assert dict(settings.itertuples(index=False)) == {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "python_enable_replacements": "false",
    }


def test_a_column_of_another_table_is_said_to_be_one(run: Results) -> None:
    with pytest.raises(ResultsError) as caught:
        run.query("SELECT batch_size FROM measurements")
    assert str(caught.value.hint).startswith("another table has batch_size: FROM measurements JOIN")
    run.query("SELECT batch_size FROM measurements JOIN trials USING (trial)")


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


_ENDLESS = {
    "a recursion": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
    "SELECT count(*) FROM t",
    "a cross join": "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c "
    "WHERE a.range + b.range * c.range = 7",
}
_HUGE = {
    "many texts": "SELECT count(DISTINCT repeat('x', 1000000 + range)) FROM range(100000)",
    "a group": "SELECT length(list(range)) FROM range(3000000000)",
    "an answer": "SELECT a.range, b.range FROM range(1000000) a, range(1000000) b",
}


@pytest.mark.parametrize("sql", _ENDLESS.values(), ids=_ENDLESS)
def test_a_query_without_end_is_ended(
    run: Results, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(session.SECONDS_VARIABLE, "0.2")
    with pytest.raises(ResultsError, match=r"no answer within 0\.2 s") as caught:
        run.query(sql)
    assert caught.value.hint == "ask for less, or set BATCHSCALE_QUERY_SECONDS"
    with pytest.raises(ResultsError, match=r"no answer within 0\.2 s"):
        run.where(f"(FROM ({sql})) = 0")


@pytest.mark.parametrize("sql", _HUGE.values(), ids=_HUGE)
def test_a_query_has_so_much_memory(
    run: Results, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(session.MEMORY_VARIABLE, "0.1")
    with pytest.raises(ResultsError, match=r"it needs more than 0\.1 GB of memory") as caught:
        run.query(sql)
    assert caught.value.hint == "ask for less, or set BATCHSCALE_QUERY_GB"


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "much"])
@pytest.mark.parametrize("variable", [session.SECONDS_VARIABLE, session.MEMORY_VARIABLE])
def test_a_limit_is_a_positive_number(
    run: Results, variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ResultsError, match=f"{variable} is '{text}', not a positive number"):
        run.query("SELECT 1")
