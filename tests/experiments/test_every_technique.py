"""Each packaged technique: engines agree, a trial is the same in any pack, and files take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import batchscale as bs
from experiments import techniques
from experiments.config.compile import load
from experiments.engines import stackable
from experiments.errors import ExperimentError
from experiments.training.study_context import StudyContext
from tests.experiments.files import folder
from tests.experiments.technique_file import EXAMPLES, VARIANTS
from tests.marks import quick
from tests.problems import engine, largest_difference, study, trials

EVERY = [*({name: value} for name, value in EXAMPLES.items()), *VARIANTS]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "technique",
    quick(
        [
            *({name: value} for name, value in EXAMPLES.items()),
            *(pytest.param(variant, marks=pytest.mark.slow) for variant in VARIANTS),
        ],
        4,
    ),
    ids=str,
)
def test_engines_agree(technique: dict[str, Any]) -> None:
    """In float64, with a schedule; then in packs that change."""
    of = study(
        workload="digits-mlp", optimizer="momentum", schedule="cosine", precision="float64",
        batch_size=16, technique=technique,
    )  # fmt: skip
    pack = trials(of, 3)
    assert stackable(StudyContext.load(of), pack) is None
    module, stacked = engine("module", of, pack), engine("stacked", of, pack)
    for each in (module, stacked):
        each.advance(20)
    measured = [each.evaluate("validation") for each in (module, stacked)]
    for row in range(3):
        assert largest_difference(module.weights(row), stacked.weights(row)) < 1e-9
        assert largest_difference(module.measured(row), stacked.measured(row)) < 1e-9
        assert measured[0][row] == pytest.approx(measured[1][row], rel=1e-9)
    for kind, whole in (("module", module), ("stacked", stacked)):
        changing = engine(kind, of, pack[1:])
        changing.advance(7)
        (saved,) = changing.copy([1])
        changing.advance(2)
        changing.restore(1, saved)
        changing.keep([1])
        changing.add(pack[:1])
        changing.advance(13)
        resumed = engine(kind, of, tuple(changing.trials))
        resumed.load(changing.state())
        resumed.advance(7)
        for name, value in resumed.weights(1).items():
            assert value.equal(whole.weights(0)[name])
        changing.keep([0])
        for name, value in changing.weights(0).items():
            assert value.equal(whole.weights(2)[name])


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
    values = ", ".join(_flow(technique) for technique in EVERY)
    file = folder(tmp_path, FILE.format(values))
    plans = load(file).plans()
    described = [dict(plan.study.technique) for plan in plans]
    assert len(plans) == len(EVERY) + 1
    assert len({plan.study.id for plan in plans}) == len(plans)
    for technique in EVERY:
        loaded = techniques.load(technique, None)
        written = {name: part.written for name, part in loaded.parts.items()}
        assert {"precision": "float32", **written} in described


def _flow(value: Any) -> str:
    """As YAML has it, on a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return str(value)


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


@pytest.mark.parametrize(
    ("technique", "message"),
    [
        ("{ema: 0.9, swa: 0.5}", "cannot be together: evaluations measure one average"),
        ("{lookahead: 5, ema: 0.9}", "cannot be together: evaluations measure one average"),
        ("{quantize: 8, prune: 0.5}", "cannot be together: rounding makes more weights zero"),
        ("{clip: {}}", "give norm, value or both"),
        ("{prune: 1}", "sparsity cannot be 1"),
        ("{prune: {sparsity: 0.5, stages: 3}}", "begin and stages are those of gradual"),
        ("{prune: {sparsity: 0.5, until: 0.2, begin: 0.3}}", "until must be later than begin"),
        ("{prune: {sparsity: 0.5, by: gradient, until: 0.3}}", "prunes once, in the first step"),
        ("{prune: {sparsity: 0.5, structure: units, scope: model}}", "leave scope out"),
        ("{quantize: 3}", "bits cannot be 3"),
        ("{label_smoothing: 1}", "epsilon cannot be 1"),
        ("{dropout: 1}", "rate cannot be 1"),
        ("{lookahead: 0}", "every cannot be 0"),
        ("{weight_decay: {rate: 0.1, kind: loose}}", "kind cannot be 'loose'"),
        ("{gradient_noise: -1}", "variance cannot be -1"),
    ],
)
def test_wrong_arguments_and_combinations(tmp_path: Path, technique: str, message: str) -> None:
    file = folder(tmp_path, FILE.format(technique))
    with pytest.raises(ExperimentError) as raised:
        load(file).plans()
    assert str(raised.value).startswith(f"{file}:5: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("optimizer", ["sgd", "schedule-free-sgd"])
def test_only_averages_exclude_an_averaging_optimizer(tmp_path: Path, optimizer: str) -> None:
    text = FILE.replace("sgd", optimizer)
    assert load(folder(tmp_path, text.format("{prune: 0.5}"))).plans()
    if optimizer != "sgd":
        with pytest.raises(ExperimentError, match="technique swa and optimizer"):
            load(folder(tmp_path, text.format("{swa: 0.5}"))).plans()
