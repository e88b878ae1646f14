"""The published tables of Step Law and AlgoPerf, where they are below ``$BATCHSCALE_DATA``.

They are no part of this project, and come from repositories on GitHub:

- ``step-law/dense_lr_bs_loss.csv``, ``step-law/moe_lr_bs_loss.csv``: ``data/`` of step-law/steplaw;
- ``algoperf/raw_measurements.csv`` and ``algoperf/time_to_target_steps.csv``: ``analysis/data/`` of
  mlcommons/submissions_algorithms at commit 0007993e; ``algoperf/workload_targets.json``: its
  ``scoring/``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import batchscale as bs
import results
from results.extensions import IMPORTS
from workloads.data import data_root

pytestmark = pytest.mark.slow
TABLES = {
    "step-law": ("dense_lr_bs_loss.csv", "moe_lr_bs_loss.csv"),
    "algoperf": ("raw_measurements.csv", "time_to_target_steps.csv", "workload_targets.json"),
}


def folder(kind: str) -> Path:
    """Where the tables are; skips where one is not."""
    path = data_root() / kind
    if not all((path / name).exists() for name in TABLES[kind]):
        pytest.skip(f"{kind}: no tables in {path}")
    return path


def test_algoperfs_steps_to_target_are_recomputed_equal(tmp_path: Path) -> None:
    """All entries of their table, of 16 submissions on 9 workloads: the median over a submission's
    studies, where a study without a hit counts as infinite."""
    path = folder("algoperf")
    config = json.loads((path / "workload_targets.json").read_text())
    lower = {"loss", "ctc_loss", "wer", "ppl"}
    targets, sizes = {}, {}
    for name in config["base_workloads"]:
        metric, value = list(config["workloads"][name].values())[:2]
        targets[name] = f"validation_{metric} {'<' if metric in lower else '>'} {value!r}"
        sizes[name] = "1"  # they say nothing of batch sizes, and steps do not depend on them
    done = IMPORTS.get("algoperf")(
        path / "raw_measurements.csv", tmp_path / "runs", batch_sizes=sizes, targets=targets
    )
    assert (done.trials, done.measurements) == (421, 11_678)
    trials = results.open(tmp_path / "runs").trials
    names = [json.loads(text) for text in trials["as_published"]]
    trials = trials.assign(
        submission=[each["submission"] for each in names], run=[each["study"] for each in names]
    )
    per_study = trials.groupby(["submission", "workload", "run"])["steps_to_target"].min()
    computed = per_study.fillna(math.inf).groupby(["submission", "workload"]).median().unstack()
    published = pd.read_csv(path / "time_to_target_steps.csv", index_col=0)
    assert published.size == 144
    assert np.isfinite(published.to_numpy()).sum() > 60
    pd.testing.assert_frame_equal(
        computed.reindex_like(published), published, check_names=False, check_exact=True
    )


@pytest.fixture(scope="module")
def step_law(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, root = folder("step-law"), tmp_path_factory.mktemp("step-law")
    counts = [IMPORTS.get("step-law")(path / name, root).trials for name in TABLES["step-law"]]
    assert counts == [1911, 708]
    return root


def test_step_laws_optimal_batch_sizes(step_law: Path) -> None:
    """Their law of dense models, fitted by other means: B = 0.58 D^0.571, both in tokens. At the
    budgets of each model our optima are 0.69 to 1.20 times that, and the intervals of our exponents
    hold theirs."""
    laws = bs.optimal_batch(step_law, where="model = 'dense'", unit="tokens")
    assert len(laws) == 5
    ratios, exponents = [], []
    for law in laws:
        for optimum in law["optima"]:
            value: Any = optimum["optimal_batch_size"]["value"]
            if value is not None:
                ratios.append(value / (0.58 * optimum["budget"] ** 0.571))
        if law["exponent"]["low"] is not None:
            exponents.append((law["exponent"]["low"], law["exponent"]["high"]))
    assert len(ratios) == 17
    assert len(exponents) == 4
    assert all(low < 0.571 < high for low, high in exponents)
    assert 0.65 < min(ratios) < max(ratios) < 1.25, sorted(ratios)
    assert len(bs.optimal_batch(step_law, where="model = 'moe'")) == 4


def test_step_laws_curves_at_equal_loss(step_law: Path) -> None:
    """Real language-model curves are U-shaped in tokens: each has a small-batch penalty."""
    curves = bs.regimes(
        step_law, read="final", where="model = 'dense' AND N < 5e8", target="train_loss < 2.45"
    )
    assert [curve["N"] for curve in curves] == [214663680, 429260800, 268304384]
    for curve in curves:
        low, high = curve["best_batch_size"]["low"], curve["best_batch_size"]["high"]
        assert 32 < low < high < 400
        assert any("a small-batch penalty" in note for note in curve["notes"])
        assert 300 < curve["perfect_scaling_until"]["value"] < 1000
        assert curve["critical_batch_size"]["low"] > 1000  # beyond what they tested
