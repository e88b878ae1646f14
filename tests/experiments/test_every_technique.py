"""Each packaged technique in an experiment file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import batchscale as bs
from experiments import techniques
from experiments.config.compile import load
from tests.conformance.cases import ON_DIGITS
from tests.experiments.files import folder

FILE = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: [none, {}]
search: {{learning_rate: {{log: [0.1, 1]}}}}
trials: 1
budget: 2 steps
target: validation_error < 0.01
"""


def test_a_file_sweeps_each_of_them(tmp_path: Path) -> None:
    values = ", ".join(json.dumps(technique) for technique in ON_DIGITS)  # YAML too
    file = folder(tmp_path, FILE.format(values))
    plans = load(file).plans()
    described = [dict(plan.study.technique) for plan in plans]
    assert len(plans) == len(ON_DIGITS) + 1
    assert len({plan.study.id for plan in plans}) == len(plans)
    for technique in ON_DIGITS:
        loaded = techniques.load(technique, None)
        written = {name: part.written for name, part in loaded.parts.items()}
        assert {"precision": "float32", **written} in described


@pytest.mark.slow
def test_a_sweep_records_what_is_measured_besides(tmp_path: Path) -> None:
    file = folder(tmp_path, FILE.format("{quantize: {bits: 4, when: after}}"))
    run = bs.sweep(file, results=tmp_path / "runs", address="none")
    measured = run.measurements
    assert measured["metrics"].astype(str).str.contains("validation_error_w4").any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_a_target_on_the_metric_after_quantization(tmp_path: Path, kind: str) -> None:
    """Steps to target are those of the first evaluation whose quantized metric is better."""
    text = FILE.format("{quantize: {bits: 4, activations: 4, when: after}}").replace(
        "technique: [none, ", "technique: ["
    )
    text = text.replace("validation_error < 0.01", "validation_error_w4a4 < 0.15")
    text = text.replace("2 steps", "150 steps").replace("trials: 1", "trials: 3")
    file = folder(tmp_path, text + f"engine: {kind}\nstop_at_target: false\n")
    run = bs.sweep(file, results=tmp_path / "runs", address="none")
    rows = run.measurements
    rows["after"] = [json.loads(each)["validation_error_w4a4"] for each in rows["metrics"]]
    assert (rows["after"] != rows["validation_error"]).any()
    for trial in run.trials.itertuples():
        of_trial = rows[rows["trial"] == trial.trial].sort_values("step")
        hits = of_trial[of_trial["after"] < 0.15]["step"]
        assert trial.target_metric == "validation_error_w4a4"
        assert trial.steps_to_target == hits.min()
        assert trial.last_miss == of_trial[of_trial["step"] < hits.min()]["step"].max()
