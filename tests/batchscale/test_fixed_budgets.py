"""One sweep that trains past its target, read at several budgets.

From the experiment file to ``--read final`` and ``plot optimal-batch``, against the measurements.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import PchipInterpolator

import batchscale as bs

FILE = """\
workload: digits-softmax
grid:
  batch_size: 8..128
  optimizer: momentum
search:
  learning_rate: {log: [0.03, 1]}
  momentum: 0.9
trials: 3
budget: 4096 examples
target: validation_cross_entropy < 0.2
stop_at_target: false
evaluation_ratio: 1.3
"""
BUDGETS = [256, 512, 1024, 2048, 4096]
UNDER = [f"{budget} examples" for budget in BUDGETS]
SIZES = [8, 16, 32, 64, 128]
METRIC = "validation_cross_entropy"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("budgets")
    (folder / "budgets.yaml").write_text(FILE)
    bs.sweep(folder / "budgets.yaml", results=folder / "runs", address="none")
    return folder / "runs"


def best(run: Path) -> pd.DataFrame:
    """The least loss of all trials, a row a batch size and a column a budget, by hand."""
    opened = bs.open(run)
    trials = opened.trials
    sizes = dict(zip(trials["trial"], trials["batch_size"], strict=True))
    assert set(trials["stop_reason"]) == {"budget"}, "each went on past the target"
    rows = []
    for trial, measured in opened.measurements.sort_values("step").groupby("trial"):
        size = sizes[trial]
        seen = np.log(measured["step"].to_numpy(float) * size)
        rows.append([size, *np.interp(np.log(BUDGETS), seen, measured[METRIC])])
    return pd.DataFrame(rows, columns=["batch_size", *BUDGETS]).groupby("batch_size").min()


def test_steps_at_equal_loss_are_those_of_the_measurements(run: Path) -> None:
    (curve,) = bs.regimes(run, read="final", target=f"{METRIC} < 0.2", under=UNDER)
    expected = {}
    for size, losses in best(run).iterrows():
        if not losses.min() < 0.2 < losses.max():
            continue
        at = PchipInterpolator(np.log(BUDGETS), losses)
        grid = np.linspace(np.log(BUDGETS[0]), np.log(BUDGETS[-1]), 200_001)
        expected[size] = float(np.exp(grid[np.argmax(at(grid) <= 0.2)])) / size  # type: ignore[operator]
    assert len(expected) >= 4
    points = {p["batch_size"]: p["steps"] for p in curve["points"] if p["steps"] is not None}
    assert points == pytest.approx(expected, rel=1e-3)
    assert curve["batch_sizes"] == SIZES
    assert curve["estimator"] == "iso_loss"


def test_the_optimal_batch_size_is_near_the_best_tested_one(run: Path, tmp_path: Path) -> None:
    (law,) = bs.optimal_batch(run, target=f"{METRIC} < 0.2", under=UNDER)
    losses = best(run)
    assert [optimum["budget"] for optimum in law["optima"]] == BUDGETS
    for optimum in law["optima"]:
        of_budget = losses[int(optimum["budget"])]
        assert optimum["best_tested"] == of_budget.idxmin()
        assert optimum["loss"] == pytest.approx(of_budget.min(), rel=1e-9)
    bs.plot("optimal-batch", run, target=f"{METRIC} < 0.2", under=UNDER, output=tmp_path / "o.svg")
    table = pd.read_csv(tmp_path / "o.csv")
    assert sorted(set(table["budget"])) == BUDGETS
