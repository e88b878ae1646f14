"""The ramp that branches propose, trained: fewer steps, and a loss within the tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import batchscale as bs
from batchscale.training import recorded_trial, study_of
from experiments.config.yaml_lines import read
from experiments.factors.ramp import Ramp
from tests.problems import measurements, train

MODEL = """\
  text: stdlib
  context: 32
  layers: 1
  width: 32
  heads: 2
  validation_tokens: 4096
"""
EXPERIMENT = f"""\
name: lm
workload: lm-transformer
grid:
  batch_size: 4
  optimizer: adamw
  schedule: linear
{MODEL}search: {{learning_rate: 0.002, decay: 1, end_factor: 0.05, weight_decay: 0.0, beta2: 0.99}}
trials: 4
budget: 1200 steps
target: validation_cross_entropy < 2.2
stop_at_target: false
engine: stacked
evaluation_ratio: 1.01
"""
METRIC = "validation_cross_entropy"


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_ramp_proposed_saves_steps_within_the_tolerance(tmp_path: Path) -> None:
    """Each trial against itself with the ramp, which is the same run up to there, and sees the same
    data after, at the end of the budget: the rate has decayed by then, and losses scatter little.

    What the tolerance is in tokens is another question: here 1 % of the loss is over 10 % of them.
    """
    (tmp_path / "lm.yaml").write_text(EXPERIMENT)
    bs.sweep(tmp_path / "lm.yaml", results=tmp_path / "runs", address="none")
    opened = bs.open(tmp_path / "runs").results
    rows = [recorded_trial(opened, trial) for trial in opened.trials["trial"]]
    made = bs.branch(
        rows[0][1].id, at=[400, 800], by=[2, 4], window="400 steps", seeds=4,
        results=tmp_path / "runs",
    )  # fmt: skip
    assert made.proposed is not None
    written = Ramp.parse(read(made.proposed["batch_size"], "ramp")[0]["ramp"])
    assert written is not None
    study = study_of(opened, rows[0][0])
    arguments = {name: int(v) for name, v in rows[0][1].metaparameters.items() if "steps" in name}
    sizes = written.resolve(
        4, 1200, examples=study.train_examples, schedule=study.algorithm[1],
        arguments=arguments, tuned=(),
    )  # fmt: skip
    ramped = replace(study, ramp=sizes, budget_steps=sizes.budget_steps or 0)
    events = measurements(train(ramped, tuple(point for _, point in rows), "stacked"))
    last = {m.trial: m for m in events}
    recorded = opened.measurements
    ratios = []
    for row, point in rows:
        plain, grown = recorded[recorded["trial"] == point.id].iloc[-1], last[point.id]
        assert grown.examples == plain["examples"]
        ratios.append((grown.step / row["steps_run"], grown.metrics[METRIC] / plain[METRIC]))
    steps, losses = np.exp(np.log(ratios).mean(axis=0))
    assert steps < 0.9, ratios
    assert losses < 1 + made.tolerance, ratios


CONSTANT = f"""\
name: constant
workload: lm-transformer
grid:
  batch_size: 2
  optimizer: adamw
{MODEL}search: {{learning_rate: 0.0014, weight_decay: 0.0, beta2: 0.99}}
trials: 24
budget: 4000 steps
target: validation_cross_entropy < 2.1
keep: off
evaluate: full
engine: stacked
evaluation_ratio: 1.02
"""


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_ramp_proposed_comes_to_a_target_in_fewer_steps_for_few_more_tokens(
    tmp_path: Path,
) -> None:
    """Of 48 trials each, 0.80 of the steps and 1.04 [1.02, 1.07] times the tokens; of these 24,
    0.81 and 1.06: that they are at most 1.05 times as many is not shown, and not excluded."""
    results = tmp_path / "runs"
    (tmp_path / "constant.yaml").write_text(CONSTANT)
    bs.sweep(tmp_path / "constant.yaml", results=results, address="none")
    made = bs.branch(
        "constant", at=[1200], by=[2], window="800 steps", seeds=4, results=results
    )  # fmt: skip
    assert made.proposed is not None
    ramped = CONSTANT.replace("batch_size: 2", f"batch_size: {made.proposed['batch_size']}")
    (tmp_path / "ramped.yaml").write_text(ramped.replace("name: constant", "name: ramped"))
    bs.sweep(tmp_path / "ramped.yaml", results=results, address="none")
    opened = bs.open(results).results
    trials = opened.trials[opened.trials["role"] == "search"]
    seen = opened.measurements[["trial", "step", "examples"]]
    rows = trials.merge(seen, left_on=["trial", "steps_to_target"], right_on=["trial", "step"])
    logs = {
        name: np.log(of_one[["steps_to_target", "examples"]].to_numpy(dtype=float))
        for name, of_one in rows.groupby("experiment")
    }
    plain, grown = logs["constant"], logs["ramped"]
    assert len(plain) == len(grown) == 24
    more = grown.mean(axis=0) - plain.mean(axis=0)
    error = np.sqrt((grown.var(axis=0, ddof=1) + plain.var(axis=0, ddof=1)) / 24)
    steps, tokens = np.exp(more + 1.68 * error), np.exp(more - 1.68 * error)
    assert steps[0] < 0.9, np.exp(more)
    assert tokens[1] < 1.05, np.exp(more)
