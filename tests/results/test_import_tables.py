"""Imports of tables of others: Step Law, AlgoPerf, Weights & Biases; each on a made file that has
the columns of the published ones."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import batchscale as bs
import results
from analysis.figure_data import FigureData, Query
from results.errors import ResultsError
from results.extensions import IMPORTS
from tests.analysis import loss_surfaces as made

# Step Law. https://github.com/step-law/steplaw/tree/main/data

DENSE = ["h", "ffnh", "numh", "numl", "lr", "bs", "exp_name", "D", "N", "D_N", "ti", "loss"]
SIZES = [2**i for i in range(4, 12)]
TOKENS = [2e9, 4e9, 8e9, 1.6e10]


def dense(
    sizes: Sequence[int] = SIZES, budgets: Sequence[float] = TOKENS, smooth: str = "smooth loss"
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for params, hidden in ((214_663_680, 960), (536_872_960, 1280)):
        for tokens in budgets:
            for size in sizes:
                for rate in (4.88e-4, 9.77e-4, 1.95e-3):
                    loss = made.parabola(tokens, size * 2048 / 16)
                    loss += 0.05 * float(np.log(rate / 9.77e-4) ** 2) + 1e8 / params
                    rows.append(
                        {
                            "h": hidden, "ffnh": 9368, "numh": 15, "numl": 7, "lr": rate,
                            "bs": size, "exp_name": f"{params}-{tokens}-{size}-{rate}",
                            "D": int(tokens), "N": params, "D_N": tokens / params,
                            "ti": round(tokens / size / 2048), "loss": loss + 0.01, smooth: loss,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_step_law(tmp_path: Path) -> None:
    path, root = tmp_path / "dense_lr_bs_loss.csv", tmp_path / "runs"
    dense().to_csv(path, index=False)
    done = IMPORTS.get("step-law")(path, root)
    assert (done.experiment, done.trials) == ("dense_lr_bs_loss", 2 * 4 * len(SIZES) * 3)
    assert IMPORTS.get("step-law")(path, root).fresh is False
    run = results.open(root)
    assert set(run.trials.role) == {"final"}
    assert set(run.trials.tokens_per_example) == {2048}
    assert run.trials.fields.nunique() == 2
    assert json.loads(run.trials.fields[0]) == {"N": 214663680}
    assert json.loads(run.trials.as_published[0])["exp_name"].startswith("214663680-")
    finals = FigureData(Query(sources=[root])).final_losses
    assert [final.label for final in finals] == ["N 2.14664e+08", "N 5.36873e+08"]
    bs.plot("optimal-batch", root, unit="tokens", output=tmp_path / "figure.svg")
    table = pd.read_csv(tmp_path / "figure.csv")
    true = 16 * made.COEFFICIENT * table["budget"] ** made.EXPONENT
    assert set(table["unit"]) == {"tokens"}
    assert table["optimal_batch_size"].tolist() == pytest.approx(true.tolist(), rel=0.02)
    (curve,) = bs.regimes(root, read="final", where="N = 214663680", target="train_loss < 2.71")
    assert curve["example_unit"] == "sequence"
    assert len(curve["batch_sizes"]) - len(curve["censored"]) >= 4


def test_step_law_of_experts(tmp_path: Path) -> None:
    frame = dense(smooth="smooth_loss").drop(columns=["ti", "D_N"])
    frame = frame.assign(Na=frame["N"] // 4, seq_len=4096, topk=2, nume=8, moe_name="a")
    frame.loc[frame.index[::2], "topk"] = 4
    path = tmp_path / "moe.csv"
    frame.to_csv(path, index=False)
    IMPORTS.get("step-law")(path, tmp_path / "runs", name="moe")
    trials = results.open(tmp_path / "runs").trials
    assert set(trials.model) == {"moe"}
    assert json.loads(trials.fields[0]) == {"N": 214663680, "Na": 53665920, "topk": "4"}
    assert trials.steps_run[0] == round(2e9 / 16 / 4096)
    assert trials.fields.nunique() == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr": None}, "line 1: no column 'lr'"),
        ({"smooth loss": None, "loss": None}, "line 1: no column 'smooth loss'"),
        ({"bs": 2.5}, "line 2: bs is 2.5, but it must be whole"),
        ({"bs": 10**15}, "line 2: batch_size is"),
        ({"D": -1}, "line 2: D is -1, but it must be above 0"),
        ({"ti": 0.2}, "line 2: 0.2 steps of 16 sequences"),
        ({"lr": "x"}, "line 2: lr is 'x', not a number"),
    ],
)
def test_step_law_rows_that_cannot_be_placed(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    frame = dense([16], [2e9])
    for name, value in change.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    path = tmp_path / "dense.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ResultsError, match=says) as caught:
        IMPORTS.get("step-law")(path, tmp_path / "runs")
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()


# AlgoPerf: the columns of its eval_measurements.csv, with those that its scoring adds.


def algoperf(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for submission in ("baseline", "prize"):
        for workload, metric, start, sign in (
            ("fastmri_jax", "ssim", 0.4, 1),
            ("wmt_jax", "loss", 3.0, -1),
        ):
            for trial in range(5):
                value = start
                for step in range(0, 2000, 100):
                    value += sign * 0.03 * float(rng.uniform(-0.3, 1))
                    rows.append(
                        {
                            "submission": submission, "workload": workload, "study": 0,
                            "trial": f"trial_{trial}", "global_step": step, "score": step * 1.5,
                            "preemption_count": 0, "validation/num_examples": 1000,
                            f"validation/{metric}": round(value, 2),
                            "train/loss": value + 1, "hparams": json.dumps({"learning_rate": 0.1}),
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


TARGETS = {"fastmri": "validation_ssim > 0.55", "wmt": "validation_loss < 2.85"}


def test_algoperf_and_its_table_of_steps_to_target(tmp_path: Path) -> None:
    frame = algoperf()
    path, root = tmp_path / "raw_measurements.csv", tmp_path / "runs"
    frame.to_csv(path, index=False)
    done = IMPORTS.get("algoperf")(
        path, root, batch_sizes={"fastmri": "32", "wmt": "128"}, targets=TARGETS
    )
    assert (done.trials, done.measurements) == (20, 400)
    # AlgoPerf's rule, on the table itself: the first evaluation that is as good as the target.
    expected = {}
    for (submission, workload, trial), rows in frame.groupby(["submission", "workload", "trial"]):
        if workload == "fastmri_jax":
            hit = rows[rows["validation/ssim"] >= 0.55]
        else:
            hit = rows[rows["validation/loss"] <= 2.85]
        first = float(hit["global_step"].iloc[0]) if len(hit) else np.nan
        expected[submission, str(workload).removesuffix("_jax"), trial] = first
    equal = ((frame["validation/ssim"] == 0.55) | (frame["validation/loss"] == 2.85)).sum()
    assert equal > 0, "somewhere the metric equals the target"
    trials = results.open(root).trials
    computed = {}
    for trial in trials.itertuples():
        names = json.loads(str(trial.as_published))
        key = names["submission"], str(trial.workload), names["trial"]
        computed[key] = float(trial.steps_to_target)  # type: ignore[arg-type]
    assert computed == pytest.approx(expected, nan_ok=True)
    assert 0 < np.isnan([*expected.values()]).sum() + 1 < 20
    # The same from the measurements, as for any other target.
    again = results.open(root).where("workload = 'wmt'").with_target("validation_loss < 2.8500001")
    wmt = trials[trials.workload == "wmt"]
    assert again.trials.steps_to_target.tolist() == pytest.approx(
        wmt.steps_to_target.tolist(), nan_ok=True
    )
    assert set(trials.batch_size) == {32, 128}
    assert set(trials.learning_rate) == {0.1}
    assert not any("num_examples" in str(text) for text in results.open(root).measurements.metrics)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"global_step": None}, {}, "line 1: no column 'global_step'"),
        ({}, {}, "line 2: the batch size of fastmri is not known"),
        ({}, {"batch_sizes": {"fastmri": "x"}}, "--batch-size fastmri=x"),
        ({"batch_size": 0}, {}, "line 2: batch_size is 0"),
        ({"batch_size": 8, "global_step": 3}, {}, "line 3: global_step 3 occurs twice"),
        ({"batch_size": 8}, {"targets": {"vit": "validation_loss < 1"}}, "no workload 'vit'"),
        ({"batch_size": 8}, {"targets": {"wmt": "loss"}}, "is not METRIC < VALUE"),
        (
            {"batch_size": 8},
            {"targets": {"wmt": "validation_los < 1"}},
            "no metric 'validation_los'",
        ),
        ({"batch_size": 8, "hparams": "{"}, {}, "line 2: hparams is not JSON"),
        ({"batch_size": 8, "workload": ""}, {}, "line 2: workload or trial is missing"),
    ],
)
def test_algoperf_rows_that_cannot_be_placed(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    frame = algoperf()
    for name, value in change.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    path = tmp_path / "raw_measurements.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ResultsError, match=says):
        IMPORTS.get("algoperf")(path, tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


# Weights & Biases.


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
    done = IMPORTS.get("wandb")(folder, root)
    assert (done.experiment, done.trials) == ("sweep", 4)
    run = results.open(root)
    rates = dict(zip(run.trials.batch_size, run.trials.learning_rate, strict=True))
    assert rates == pytest.approx({8: 0.8, 16: 1.6, 32: 3.2, 64: 6.4})
    assert set(run.trials.optimizer) == {"adamw"}
    assert {json.loads(text)["width"] for text in run.trials.fields} <= {64, "64"}
    measured = run.measurements
    assert len(measured) == 4 * 1200
    assert measured.validation_loss.notna().sum() == 4 * 120
    trials = run.with_target("validation_loss < 1.8").trials
    for size, reached in zip(trials.batch_size, trials.steps_to_target, strict=True):
        losses = history(size)
        hit = losses[losses["val/loss"] < 1.8]
        assert reached == hit["_step"].iloc[0]


def test_wandb_one_file_of_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    parts = [history(size, 50).assign(run_id=f"r{size}") for size in (8, 16)]
    pd.concat(parts).rename(columns={"config.batch_size": "B"}).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="line 1: no column batch_size") as caught:
        IMPORTS.get("wandb")(path, tmp_path / "runs")
    assert "--map batch_size=THEIRS" in str(caught.value.hint)
    IMPORTS.get("wandb")(path, tmp_path / "runs", columns={"batch_size": "B"})
    assert results.open(tmp_path / "runs").trials.batch_size.tolist() == [8, 16]


@pytest.mark.parametrize("samples", [500, 1000, 100])
def test_a_sampled_history_is_refused(tmp_path: Path, samples: int) -> None:
    path = tmp_path / "run.csv"
    sampled(history(8, 4000), samples).to_csv(path, index=False)
    with pytest.raises(ResultsError, match="the history of run is sampled") as caught:
        IMPORTS.get("wandb")(path, tmp_path / "runs")
    assert "scan_history" in str(caught.value.hint)
    assert not (tmp_path / "runs").exists()
    assert IMPORTS.get("wandb")(path, tmp_path / "runs", complete=True).trials == 1


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
        assert IMPORTS.get("wandb")(path, tmp_path / "runs", name=called).trials == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"_step": None}, "line 1: no column '_step'"),
        ({"_step": "x"}, "line 2: _step is 'x', not a number"),
        ({"config.batch_size": 0}, "batch_size is 0.0, not a number"),
        ({"config.batch_size": "big"}, "batch_size is 'big', not a number"),
        ({"train/loss": None, "val/loss": None}, "line 1: no column of a metric"),
        ({"train/loss": "x"}, "line 2: train/loss is 'x', not a number"),
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
        IMPORTS.get("wandb")(path, tmp_path / "runs")
    (tmp_path / "none").mkdir()
    with pytest.raises(ResultsError, match=r"holds no \.csv or \.parquet"):
        IMPORTS.get("wandb")(tmp_path / "none", tmp_path / "runs")
