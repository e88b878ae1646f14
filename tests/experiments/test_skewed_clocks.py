"""A machine whose clock is ahead discards no later work, and hides no failure."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import batchscale as bs
from experiments.records.status import status
from results.schema import SCHEMAS
from tests.experiments.test_sweep import experiment, run, table


def an_hour_ahead(root: Path) -> None:
    """As if the machine that wrote all of these rows had its clock an hour ahead."""
    for name in ("studies", "trials"):
        for path in (root / name).rglob("*.parquet"):
            rows = pq.read_table(path)
            time = pc.add(rows["time"], pa.scalar(timedelta(hours=1)))
            place = rows.schema.get_field_index("time")
            rows = rows.set_column(place, rows.schema.field(place), time)
            pq.write_table(rows.replace_schema_metadata(SCHEMAS[name].metadata), path)


def test_a_larger_budget_counts(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", budget="40 steps", trials=4))
    an_hour_ahead(tmp_path)
    did = run(tmp_path, experiment(keep="off", budget="80 steps", trials=4))
    assert did.trained
    rows = table(tmp_path)
    assert (rows[rows["stop_reason"] == "budget"]["steps_run"] == 80).all()
    assert set(rows["budget_steps"]) >= {80}
    assert run(tmp_path, experiment(keep="off", budget="80 steps", trials=4)).trained == 0
    assert status(tmp_path).left == 0
    bs.compact(tmp_path)
    assert table(tmp_path).equals(rows)
    assert bs.fsck(tmp_path).defects == []


def test_another_target_is_recorded(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", trials=4))
    an_hour_ahead(tmp_path)
    easier = experiment(keep="off", trials=4, target="validation_error < 0.1")
    assert run(tmp_path, easier).trained == 0
    assert set(table(tmp_path)["target_value"]) == {0.1}


def test_failed_trials_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = experiment(keep="off", trials=4)
    run(tmp_path / "clean", of)
    bad = table(tmp_path / "clean").query("steps_run > 50 and batch_size == 128").trial.iloc[0]
    root = tmp_path / "runs"
    monkeypatch.setenv("FAKE_RAISE", bad)
    assert run(root, of).failed == 1
    an_hour_ahead(root)
    monkeypatch.delenv("FAKE_RAISE")
    assert run(root, of).trained == 1
    assert not (table(root)["stop_reason"] == "error").any()
