"""CSV cells that a spreadsheet would run, in whatever writes CSV; they read back as they were."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from batchscale.output.tables import frame_text
from results.storage.formulas import quoted, unquoted
from results.storage.save import save
from results.user_tables.table_file import TableFile

FORMULAS = [
    '=cmd|" /C calc"!A0',
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1+1",
    "\n=1+1",
    "  =1+1",
    "＝1+1",
    "'=1+1",
    "''=1+1",
    "-",
]
PLAIN = ["sgd", "a=b", "x-y", "'quoted'", "", "-1.5", "+2e-3", "-inf", "1e-3", '{"a": -1}', "é"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_text(text: str) -> None:
    assert quoted(text) == f"'{text}"
    assert unquoted(quoted(text)) == text


@pytest.mark.parametrize("text", PLAIN)
def test_all_else_stays(text: str) -> None:
    assert quoted(text) == text
    assert unquoted(text) == text


def test_no_file_and_no_answer_has_a_formula(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "name": FORMULAS,
            "=column": range(len(FORMULAS)),
            "loss": [-1.5, None, *range(len(FORMULAS) - 2)],
        }
    )
    file = tmp_path / "a.csv"
    save(frame, file)
    for text in (file.read_bytes().decode(), frame_text(frame, "csv")):
        read = pd.read_csv(io.StringIO(text, newline=""), keep_default_na=False)
        assert list(read.columns) == ["name", "'=column", "loss"]
        assert [unquoted(cell) for cell in read["name"]] == FORMULAS
        assert all(cell.startswith("'") for cell in read["name"])
        assert [float(cell or "nan") for cell in read["loss"][:1]] == [-1.5]
    assert frame["name"][0] == FORMULAS[0]
    for suffix in ("json", "parquet"):  # nothing runs what is in them
        save(frame, tmp_path / f"a.{suffix}")
    assert pd.read_parquet(tmp_path / "a.parquet")["name"].tolist() == FORMULAS
    assert [row["name"] for row in pd.read_json(tmp_path / "a.json").to_dict("records")] == FORMULAS


def test_no_row_begins_within_a_text(tmp_path: Path) -> None:
    for text in ("a\r=1+1", "a\r\n=1+1", "\r=1+1"):
        frame = pd.DataFrame({"name": [text], "steps": [1]})
        save(frame, tmp_path / "a.csv")
        for written in ((tmp_path / "a.csv").read_bytes().decode(), frame_text(frame, "csv")):
            assert "\r" not in written
            assert len(list(csv.reader(io.StringIO(written, newline="")))) == 2


def test_numbers_read_back_as_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"batch_size": [8, 16], "loss": [-1.5, 2e-300]})
    save(frame, tmp_path / "a.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), frame)


def test_a_table_of_the_users_has_its_text(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    save(pd.DataFrame({"batch_size": [8], "steps": [5], "optimizer": ["=1+1"], "@x": ["-"]}), file)
    table = TableFile.read(file)
    assert table.columns["optimizer"] == ["=1+1"]
    assert table.columns["@x"] == ["-"]
