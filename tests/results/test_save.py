"""Answers written to files of the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from results.errors import ResultsError
from results.storage import location
from results.storage.save import save

FRAME = pd.DataFrame({"optimizer": ["sgd", "adam"], "steps": [1.5, None]})


@pytest.mark.parametrize("suffix", ["csv", "parquet", "CSV"])
def test_what_is_written_reads_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"answer.{suffix}"
    path.write_text("old")
    save(FRAME, path)
    read = pd.read_parquet(path) if suffix == "parquet" else pd.read_csv(path)
    pd.testing.assert_frame_equal(read, FRAME)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_json_is_a_list_of_rows(tmp_path: Path) -> None:
    save(FRAME, tmp_path / "a.json")
    rows = json.loads((tmp_path / "a.json").read_text())
    assert rows == [{"optimizer": "sgd", "steps": 1.5}, {"optimizer": "adam", "steps": None}]
    exact = {"rate": 1.23456789012345e-11, "high": float("inf"), "at": pd.Timestamp("2026-11-29")}
    save(pd.DataFrame([exact]), tmp_path / "a.json")
    (row,) = json.loads((tmp_path / "a.json").read_text())
    assert row == {"rate": 1.23456789012345e-11, "high": "inf", "at": "2026-11-29T00:00:00"}


def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ResultsError, match=r"suffix is none of \.csv, \.parquet, \.json"):
        save(FRAME, tmp_path / "a.xlsx")
    with pytest.raises(ResultsError, match="there is no folder"):
        save(FRAME, tmp_path / "none" / "a.csv")
    (tmp_path / "a.csv").write_text("old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(location.os, "fsync", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        save(FRAME, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
