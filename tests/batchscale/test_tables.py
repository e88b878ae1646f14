from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from batchscale.output.tables import Format, frame_text, render, text

ROWS = [
    {"optimizer": "sgd", "batch_size": 8, "steps_to_target": 1234.56789, "note": "50 % of 3_4 & 5"},
    {"optimizer": "adam", "batch_size": 1024, "steps_to_target": math.nan, "note": "≥ 3 | more"},
]


def test_csv_keeps_full_precision_and_leaves_nulls_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(render(ROWS, "csv"))))
    assert rows[0]["steps_to_target"] == "1234.56789"
    assert rows[1]["steps_to_target"] == ""


def test_json_is_a_list_of_objects_with_null_for_nan() -> None:
    found = json.loads(render(ROWS, "json"))
    assert found[0]["steps_to_target"] == 1234.56789
    assert found[1]["steps_to_target"] is None


def test_numbers_stand_to_the_right_and_names_lose_their_underscores() -> None:
    lines = render(ROWS, "table").splitlines()
    assert lines[0].split("  ")[0] == "optimizer"
    assert "batch size" in lines[0]
    assert "1235" in lines[2]
    eight, thousand = lines[2].index("8"), lines[3].index("1024")
    assert eight == thousand + 3


def test_latex_escapes_what_latex_would_read() -> None:
    out = render(ROWS, "latex")
    assert r"50 \% of 3\_4 \& 5" in out
    assert r"$\geq$ 3 | more" in out
    assert out.startswith("\\begin{tabular}{lrrl}\n\\toprule\n")
    assert out.count(r"\\") == 3


def test_markdown_escapes_bars() -> None:
    lines = render(ROWS, "markdown").splitlines()
    assert lines[1] == "| --- | --: | --: | --- |"
    assert r"≥ 3 \| more" in lines[3]
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)


@pytest.mark.parametrize("format", ["table", "csv", "json", "latex", "markdown"])
def test_no_rows_are_no_error(format: Format) -> None:
    assert render([], format, columns=["a", "b"])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (math.nan, ""),
        (pd.NaT, ""),
        (pd.NA, ""),
        (True, "yes"),
        (np.float64(3.0), "3"),
        (np.int64(12), "12"),
        (0.0123456, "0.01235"),
        (1e-7, "1e-07"),
        (math.inf, "inf"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_value_as_a_reader_wants_it(value: object, shown: str) -> None:
    assert text(value) == shown


def test_rows_of_a_frame_are_plain() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": ["x", None]})
    assert json.loads(frame_text(frame, "json")) == [{"a": 1, "b": "x"}, {"a": None, "b": None}]


def test_a_table_that_is_piped_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print(render([{"a": long}], "table"))
    assert long in capsys.readouterr().out
