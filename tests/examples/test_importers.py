"""The scripts of examples/importers, each on a small file with the columns of the published one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "importers"


def table(script: str, source: Path, *more: str | Path, says: str = "") -> Path:
    """The table that a script writes; ``says``: it ends with this error instead."""
    output = source.parent / "table.csv"
    words = [sys.executable, SCRIPTS / script, source, output, *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(says), done.stderr
    assert says in done.stderr
    return output


def reference_points(path: Path, *points: tuple[str, str, int, list[float]]) -> None:
    for folder, benchmark, size, values in points:
        file = path / "mlperf_logging" / "rcp_checker" / folder / f"rcps_{benchmark}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(file.read_text()) if file.exists() else {}
        entry = {
            "Benchmark": benchmark, "Creator": "NVIDIA", "When": "before 5.0", "BS": size,
            "Hyperparams": {"opt_name": "LAMB"}, "Epochs to converge": values,
        }  # fmt: skip
        file.write_text(json.dumps({**before, f"{benchmark}_ref_{size}": entry}))


def test_mlperf(tmp_path: Path) -> None:
    source = tmp_path / "logging"
    reference_points(
        source,
        ("training_4.1.0", "bert", 256, [5120]),  # an older version
        ("training_10.0.0", "bert", 256, [2560, 2816, 25600]),
        ("training_10.0.0", "bert", 512, [3072]),
        ("training_1.1.0", "ssd", 1024, [50]),  # another model
        ("training_4.1.0", "ssd", 256, [4]),
        ("training_5.0.0", "retinanet", 256, [5]),  # the same benchmark, renamed
        ("training_3.1.0", "sd", 512, [2000]),  # counted in steps once
        ("training_6.1.0", "dlrmv4", 8192, [66_519_040]),
        ("hpc_3.0.0", "cosmoflow", 32, [20]),
        ("hpc_3.0.0", "cosmoflow", 128, [20]),
    )
    trials = results.open(table("mlperf.py", source)).trials
    steps = trials.groupby("workload")["steps_to_target"].apply(list).to_dict()
    assert steps == {
        "bert": [10.0, 11.0, 6.0],  # and not the outlier
        "ssd": [50 / 1024],
        "retinanet": [5 * 1_170_301 / 256],
        "stable_diffusion": [2000.0],
        "dlrmv4": [8120.0],
        "cosmoflow": [20 / 32, 20 / 128],
    }
    assert set(trials["role"]) == {"repeat"}
    assert set(trials["submitter"]) == {"NVIDIA"}
    assert trials[trials["recipe"] == "changed"]["batch_size"].tolist() == [32]
    reference_points(source, ("training_11.0.0", "bert", 1024, [25]))
    table("mlperf.py", source, says="bert, batch size 1024: what 25 counts is not known")
    reference_points(source, ("training_11.0.0", "novel", 8, [300]))
    table("mlperf.py", source, says="not known")


@pytest.mark.parametrize("experts", [False, True])
def test_step_law(tmp_path: Path, experts: bool) -> None:
    source = tmp_path / "lr_bs_loss.csv"
    row: dict[str, Any] = {
        "h": 960, "ffnh": 9368, "numh": 15, "numl": 7, "lr": 4.88e-4, "bs": 736, "ti": 66342,
        "loss": 2.41, "smooth loss": 2.4, "exp_name": "a", "D": 100_000_000_000, "N": 214_663_680,
    }  # fmt: skip
    rows = [row, {**row, "lr": 9.77e-4, "smooth loss": 2.3}, {**row, "N": 429_260_800, "h": 1280}]
    frame = pd.DataFrame(rows)
    if experts:
        frame = frame.drop(columns="ti").assign(Na=53_665_920, seq_len=4096, topk=[2, 4, 2])
    frame.to_csv(source, index=False)
    run = results.open(table("step_law.py", source))
    assert set(run.trials["role"]) == {"final"}
    assert run.trials["learning_rate"].tolist() == [4.88e-4, 9.77e-4, 4.88e-4]
    assert run.measurements["train_loss"].tolist() == [2.4, 2.3, 2.4]
    if experts:
        assert set(run.trials["steps_run"]) == {round(1e11 / 736 / 4096)}
        assert run.trials["model"][1] == "moe N=214663680 Na=53665920 topk=4"
    else:
        assert set(run.trials["steps_run"]) == {66342}
        assert set(run.trials["examples_run"]) == {66342 * 736}
        assert run.trials["model"].tolist() == ["dense N=214663680"] * 2 + ["dense N=429260800"]


def test_algoperf(tmp_path: Path) -> None:
    source, scoring = tmp_path / "raw_measurements.csv", tmp_path / "workload_targets.json"
    ssim = {"target_metric_name": "ssim", "validation_target_value": 0.7}
    loss = {"target_metric_name": "loss", "validation_target_value": 2.0}
    scoring.write_text(json.dumps({"workloads": {"fastmri": ssim, "wmt": loss}}))
    evaluations = {
        ("fastmri_jax", "ssim", 1): [(1, 0.2), (50, 0.6), (100, 0.7)],
        ("fastmri_jax", "ssim", 2): [(1, 0.2), (50, 0.71), (100, 0.72)],
        ("wmt_pytorch", "loss", 1): [(1, 9.0), (80, 2.0), (160, 1.9)],
        ("wmt_pytorch", "loss", 2): [(1, 9.0), (80, 2.1), (160, 2.05)],
    }
    rows = [
        {
            "submission": "prize", "workload": workload, "study": "study_0", "trial": f"trial_{n}",
            "global_step": step, "score": 1.5 * step, "validation/num_examples": 1000,
            f"validation/{metric}": value, "hparams": json.dumps({"learning_rate": n / 10}),
        }
        for (workload, metric, n), each in evaluations.items()
        for step, value in each
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(source, index=False)
    table("algoperf.py", source, scoring, "wmt=128", says="the batch size of fastmri is not known")
    run = results.open(table("algoperf.py", source, scoring, "wmt=128", "fastmri=32"))
    # A value that equals the target reaches it there.
    reached = run.trials["steps_to_target"].fillna(0).astype(int).tolist()
    assert reached == [100, 50, 80, 0]
    assert run.trials["batch_size"].tolist() == [32, 32, 128, 128]
    assert run.trials["learning_rate"].tolist() == [0.1, 0.2, 0.1, 0.2]
    assert set(run.trials["submission"]) == {"prize"}
    assert not any("num_examples" in str(text) for text in run.measurements["metrics"])


@pytest.mark.parametrize("script", ["mlperf.py", "step_law.py", "algoperf.py"])
def test_what_does_not_exist_is_one_line(script: str, tmp_path: Path) -> None:
    more = ["targets.json", "wmt=128"] if script == "algoperf.py" else []
    table(script, tmp_path / "none.csv", *more, says="none.csv does not exist")
