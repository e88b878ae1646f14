"""``import wandb``: histories of runs as Weights & Biases exports them."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from results.errors import ResultsError
from results.extensions import IMPORTS


def history(size: int, rows: int = 1200, every: int = 1) -> pd.DataFrame:
    steps = np.arange(0, rows * every, every)
    loss = 3 * (1 + steps * size) ** -0.1
    return pd.DataFrame(
        {
            "_step": steps, "_timestamp": 1.7e9 + steps, "_runtime": steps * 1.0,
            "train/loss": loss, "val/loss": np.where(steps % 10 == 0, loss + 0.1, np.nan),
            "config.batch_size": size, "config.lr": 0.1 * size, "config.optimizer": "adamw",
            "config.width": 64,
        }
    )  # fmt: skip


def sampled(frame: pd.DataFrame, samples: int) -> pd.DataFrame:
    """As W&B samples: a random row of each of equally long parts."""
    pick = random.Random(0)
    ends = np.linspace(0, len(frame), samples + 1).astype(int)
    rows = [pick.randrange(a, b) for a, b in pairwise(ends)]
    return frame.iloc[rows]


def test_wandb_a_folder_of_runs(tmp_path: Path) -> None:
    folder, root = tmp_path / "sweep", tmp_path / "runs"
    folder.mkdir()
    for size in (8, 16, 32):
        history(size).to_parquet(folder / f"run{size}.parquet")
    history(64).to_csv(folder / "run64.csv", index=False)
    (folder / "notes.txt").write_text("not a run")
    done = IMPORTS.get("log")(folder, root)
    assert (done.experiment, done.trials) == ("sweep", 4)
    run = results.open(root)
    rates = dict(zip(run.trials.batch_size, run.trials.learning_rate, strict=True))
    assert rates == pytest.approx({8: 0.8, 16: 1.6, 32: 3.2, 64: 6.4})
    assert set(run.trials.optimizer) == {"adamw"}
    assert {json.loads(text)["width"] for text in run.trials.fields} <= {64, "64"}
    measured = run.measurements
    assert len(measured) == 4 * 1200
    assert measured.metrics.notna().sum() == 4 * 120
    trials = run.with_target("val_loss < 1.8").trials
    for size, reached in zip(trials.batch_size, trials.steps_to_target, strict=True):
        losses = history(size)
        hit = losses[losses["val/loss"] < 1.8]
        assert reached == hit["_step"].iloc[0]


def test_wandb_one_file_of_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    parts = [history(size, 50).assign(run_id=f"r{size}") for size in (8, 16)]
    pd.concat(parts).rename(columns={"config.batch_size": "B"}).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="has no column 'batch_size'") as caught:
        IMPORTS.get("log")(path, tmp_path / "runs")
    assert "--map batch_size=THEIRS" in str(caught.value.hint)
    IMPORTS.get("log")(path, tmp_path / "runs", columns={"batch_size": "B"})
    assert results.open(tmp_path / "runs").trials.batch_size.tolist() == [8, 16]


def test_wandb_one_file_of_several_runs_without_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    runs = [history(size, 50).assign(Name=f"r{size}") for size in (8, 16)]
    pd.concat(runs).to_csv(path, index=False)
    trials = results.open(path).trials
    assert trials["batch_size"].tolist() == [8, 16]
    assert trials["batch_sizes"].isna().all()  # no batch size that grows
    double = [history(8, 50), history(8, 50).assign(**{"val/loss": 1.0})]
    pd.concat(double).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="step 0 occurs twice in one run at batch size 8"):
        results.open(path)


def test_wandb_rows_of_one_step_are_one_evaluation(tmp_path: Path) -> None:
    """Several calls of log at one step: the last value of each metric counts."""
    path = tmp_path / "run.csv"
    path.write_text(
        "_step,global_step,train/loss,val/loss,config.bs,config.steps\n"
        "0,10,3,,8,99\n1,10,2.5,,8,99\n2,10,,2.6,8,99\n3,20,2,,8,99\n4,25,,,8,99\n"
    )
    IMPORTS.get("log")(path, tmp_path / "runs")
    run = results.open(tmp_path / "runs")
    assert run.measurements["step"].tolist() == [10, 20]
    assert run.measurements["train_loss"].tolist() == [2.5, 2]
    assert run.measurements["metrics"].fillna("").tolist() == ['{"val_loss":2.6}', ""]
    (trial,) = run.trials.to_dict("records")
    assert (trial["trial"], trial["steps_run"], trial["batch_size"]) == ("run/run", 25, 8)
    assert json.loads(trial["fields"]) == {"config.steps": 99}


@pytest.mark.parametrize("samples", [500, 1000, 100])
def test_a_sampled_history_is_refused(tmp_path: Path, samples: int) -> None:
    path = tmp_path / "run.csv"
    sampled(history(8, 4000), samples).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="the history of run is sampled") as caught:
        IMPORTS.get("log")(path, tmp_path / "runs")
    assert "scan_history" in str(caught.value.hint)
    assert not (tmp_path / "runs").exists()
    assert IMPORTS.get("log")(path, tmp_path / "runs", complete=True).trials == 1


def test_complete_histories_are_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    whole = history(8, 4000)
    growing = np.unique(np.geomspace(1, 4000, 200).astype(int)) - 1
    mixed = sorted({*range(0, 4000, 10), *range(7, 4000, 95)})
    for name, frame in {
        "500 rows": history(8, 500),
        "500 rows, every tenth step": history(8, 500, 10),
        "growing distances": whole.iloc[growing],
        "two intervals": whole.iloc[mixed],
        "few": whole.iloc[[0, 5, 7, 100, 900]],
    }.items():
        frame.to_csv(path, index=False)
        called = name.replace(" ", "-").replace(",", "")
        assert IMPORTS.get("log")(path, tmp_path / "runs", name=called).trials == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"_step": None}, "has no column 'steps'"),
        ({"_step": "x"}, "line 2: step is 'x', not a number"),
        ({"config.batch_size": 0}, "line 2: batch_size is 0, but it must be at least 1"),
        ({"config.batch_size": "big"}, "batch_size is 'big', not a number"),
        ({"train/loss": None, "val/loss": None}, "has no metric besides step"),
        ({"train/loss": "x"}, "line 2: train_loss is 'x', not a number"),
    ],
)
def test_wandb_rows_that_cannot_be_placed(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    frame = history(8, 30)
    for name, value in change.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    path = tmp_path / "run.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ResultsError, match=says):
        IMPORTS.get("log")(path, tmp_path / "runs")
    (tmp_path / "none").mkdir()
    with pytest.raises(ResultsError, match=r"holds no log that can be read"):
        IMPORTS.get("log")(tmp_path / "none", tmp_path / "runs")
