"""Texts in CSV files: as they are, but for what would begin a row or command a terminal."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from batchscale.output.tables import frame_text
from results.storage.cells import cell
from results.storage.save import save
from results.user_tables.formats.tables import read_table_file

TEXTS = ["sgd", "a=b", "=1+1", "-", "@x", "'quoted'", "", "-1.5", '{"a": -1}', "é", "two\nlines"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_stay(text: str) -> None:
    assert cell(text) == text


def test_a_terminal_gets_no_command(tmp_path: Path) -> None:
    frame = pd.DataFrame({"na\x1bme": ["\x1b[31mred"], "loss": [-1.5]})
    save(frame, tmp_path / "a.csv")
    for text in ((tmp_path / "a.csv").read_text(), frame_text(frame, "csv")):
        assert text == "na\\x1bme,loss\n\\x1b[31mred,-1.5\n"
    assert frame.iloc[0, 0] == "\x1b[31mred"


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
    table = read_table_file(file)
    assert table.columns["optimizer"] == ["=1+1"]
    assert table.columns["@x"] == ["-"]
