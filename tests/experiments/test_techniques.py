"""Techniques: hooks of training, alone and composed, on one model and on a stack of them."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import batchscale as bs
from experiments import techniques
from experiments.canonical import canonical
from experiments.config import sources
from experiments.config.compile import load
from experiments.engines import choose, stacking_refusal
from experiments.errors import ExperimentError
from experiments.plan import Study, Trial, WorkloadRef
from experiments.techniques import Step, base
from experiments.training.study_context import StudyContext
from tests import problems
from tests.conformance.cases import ON_DIGITS
from tests.experiments.technique_file import USER_FILE
from tests.problems import engine, largest_difference, study, train, trials

KINDS = ["module", "stacked"]


def weights(of: Study, pack: tuple[Trial, ...], kind: str, steps: int) -> list[dict[str, Any]]:
    one = engine(kind, of, pack, steps=steps)
    return [one.weights(row) for row in range(len(pack))]


# What there is


def test_an_experiment_sweeps_each_technique_on_and_off() -> None:
    swept: set[str] = set()
    for name in sources.names():
        if name.startswith("techniques-"):
            listed = yaml.safe_load(sources.packaged_text(name))["grid"].get("technique", [])
            assert not listed or "none" in listed
            for entry in listed:
                swept |= {entry} if isinstance(entry, str) else set(entry)
    assert swept - {"none"} == set(techniques.names()) - {"noise_scale"}  # changes nothing


@pytest.mark.parametrize("name", techniques.names())
def test_the_example_of_an_argument_is_a_value_of_it(name: str) -> None:
    """Of the hint where a required one is absent."""
    kind = techniques.TECHNIQUES.get_class(name)
    if any(field.default is MISSING is field.default_factory for field in fields(kind)):
        (made,) = techniques.load({name: yaml.safe_load(kind.example)}, None)
        assert made.written == yaml.safe_load(kind.example)


def test_the_order_is_fixed_and_documented(user_techniques: WorkloadRef) -> None:
    written = {"ema": 0.9, "my.py:Everything": 0.1, "clip": 1.0}
    loaded = techniques.load(written, user_techniques.base)
    assert list(loaded.parts) == ["my.py:Everything", "clip", "ema"]
    for name in techniques.names():
        order = object.__new__(techniques.TECHNIQUES.get_class(name)).order
        assert order == 500 or f"| {order} | ``{name}``" in (base.__doc__ or "")


# clip


def test_clip_is_torchs() -> None:
    drawn = torch.randn(23, generator=torch.Generator().manual_seed(0))
    gradients = {"a": drawn[:20].view(4, 5), "b": drawn[20:]}
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 0.7)

    def clipped(bound: float) -> dict[str, torch.Tensor]:
        step = Step(torch.tensor(0), torch.tensor(0.1), torch.tensor(0))
        clip = techniques.load({"clip": bound}, None).parts["clip"]
        return dict(clip.gradient(gradients, gradients, {}, step))

    for parameter, value in zip(parameters, clipped(0.7).values(), strict=True):
        torch.testing.assert_close(parameter.grad, value)
    for name, value in clipped(1e6).items():  # a smaller one is left as it is
        assert torch.equal(value, gradients[name])


# ema; that training does not see it: ``test_weight_techniques``


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_diverges_with_its_trained_weights(kind: str) -> None:
    of = study(workload="digits-mlp", technique={"ema": 0.999999}, budget_steps=60)
    pack = trials(of, 2, learning_rate=1e30)
    ended = problems.outcomes(train(of, pack, kind))
    assert {outcome.stop_reason for outcome in ended.values()} == {"diverged"}


def test_an_argument_of_a_trial_is_that_of_a_study() -> None:
    """In packs: ``tests/conformance``."""
    fixed, tuned = (study(workload="digits-mlp", technique={"clip": c}) for c in (0.01, 1.0))
    (plain,) = trials(fixed, 1)
    values: dict[str, Any] = {**plain.metaparameters, "clip.norm": 0.01}
    (expected,) = weights(fixed, (plain,), "module", 5)
    (found,) = weights(tuned, (replace(plain, metaparameters=values),), "module", 5)
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


# A user's file


def test_one_that_does_not_stack_is_trained_by_the_module_engine(
    user_techniques: WorkloadRef,
) -> None:
    of = study(workload=user_techniques, technique={"my.py:Scaled": 0.5, "clip": 0.05})
    pack = trials(of, 8)
    context = StudyContext.load(of)
    assert (
        choose(StudyContext.load(replace(of, technique={"clip": 0.05, "ema": 0.9})), pack)
        == "stacked"
    )
    assert choose(context, pack) == "module"
    assert stacking_refusal(context, pack) == "technique Scaled: a test says so"
    with pytest.raises(ExperimentError, match=r"technique Scaled: a test says so$"):
        engine("stacked", of, pack)
    one, bare = pack[:1], {"weight_decay": 0.0}
    one = (replace(one[0], metaparameters={**one[0].metaparameters, **bare}),)
    clipped = weights(replace(of, technique={"clip": 0.05}), one, "module", 1)
    for factor in (0.0, 0.5):  # the first step is not scaled; the second is, before it is clipped
        both = replace(of, technique={"my.py:Scaled": factor, "clip": 0.05})
        moved = largest_difference(weights(both, one, "module", 2)[0], clipped[0])
        assert (moved == 0) == (factor == 0)


def test_random_numbers_after_the_forward_pass_are_refused(user_techniques: WorkloadRef) -> None:
    of = study(workload=user_techniques, technique={"my.py:Random": True, "clip": 1.0})
    pack = trials(of, 4)
    assert "randomness" in str(stacking_refusal(StudyContext.load(of), pack))
    with pytest.raises(ExperimentError, match="technique Random, clip draws random numbers in"):
        weights(of, pack, "module", 1)


TEXT = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: [none, {clip: 0.5}, {"my.py:Scaled": 0.25, clip: 1}, {"my.py:Precise": true}]
search: {learning_rate: {log: [0.1, 1]}}
trials: 4
budget: 60 steps
target: validation_error < 0.3
"""


@pytest.mark.slow
def test_a_small_sweep(user_techniques: WorkloadRef, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(user_techniques.base or "")
    monkeypatch.chdir(base)
    (base / "sweep.yaml").write_text(TEXT)
    run = bs.sweep("sweep.yaml", results="runs", address="none")
    rows = run.trials
    engines = dict(zip(rows["technique"].astype(str), rows["engine"], strict=True))
    assert len(engines) == 4
    for technique, kind in engines.items():
        assert kind == ("module" if "Scaled" in technique else "stacked")
        assert "my.py" not in technique
    assert bs.sweep("sweep.yaml", results="runs", address="none").summary.trained == 0  # type: ignore[union-attr]
    composed = rows[rows["technique"].astype(str).str.contains("Scaled")]
    assert bs.rerun(composed["trial"].iloc[0], results="runs", trust=True).equal
    named = bs.sweep(
        workload="digits-mlp", batch_size=64, optimizer="sgd", technique=[{"clip": 0.5}],
        learning_rate={"log": [0.1, 1]}, trials=4, budget="60 steps",
        target="validation_error < 0.3", results="runs", address="none",
    )  # fmt: skip
    assert named.summary is not None
    assert named.summary.trained == 0  # the same trials, said in Python


def file_of(base: Path, technique: str) -> Path:
    """A file of that technique, or list of them."""
    lines = TEXT.splitlines()
    lines[4] = f"  technique: {technique}"
    (base / "my.yaml").write_text("\n".join(lines) + "\n")
    return base / "my.yaml"


def ids(base: Path, technique: str) -> list[str]:
    return [plan.id for plan in load(file_of(base, technique)).studies()]


def test_identity(user_techniques: WorkloadRef) -> None:
    base = Path(user_techniques.base or "")
    plain_id = ids(base, "none")
    assert len(plain_id) == 1
    without = [line for line in TEXT.splitlines() if "technique" not in line]
    (base / "my.yaml").write_text("\n".join(without))
    assert [p.id for p in load(base / "my.yaml").studies()] == plain_id
    (base / "my.yaml").write_text("\n".join([*without, "technique: {clip: 2}"]))
    beside = load(base / "my.yaml")
    assert [p.id for p in beside.studies()] == ids(base, "[{clip: {norm: 2.0}}]")
    assert load(base / "my.yaml").studies()[0].technique == {"precision": "float32", "clip": 2.0}
    assert canonical(beside.studies()[0].identity["technique"]) == '{"clip":2}'
    both = ids(base, "[{clip: 2, ema: 0.5}]")
    assert both == ids(base, "[{ema: 0.5, clip: 2.0}]")
    mine = [
        ids(base, text)
        for text in ('"my.py:Scaled"', '{"my.py:Scaled": 0.5}', '{"my.py:Scaled": {}}')
    ]
    assert mine[0] == mine[1] == mine[2]
    (base / "my.py").write_text(USER_FILE.replace("step.number) % 2", "step.number) % 3"))
    assert ids(base, '"my.py:Scaled"') != mine[0]
    assert ids(base, "none") == plain_id
    everything = ids(base, '{"my.py:Everything": {strength: 1, kind: other}}')
    assert everything != ids(base, '{"my.py:Everything": 1}')


def test_a_file_sweeps_each_of_them(tmp_path: Path) -> None:
    values = ", ".join(json.dumps(technique) for technique in ON_DIGITS)  # YAML too
    plans = load(file_of(tmp_path, f"[none, {values}]")).studies()
    described = [dict(plan.technique) for plan in plans]
    assert len(plans) == len(ON_DIGITS) + 1
    assert len({plan.id for plan in plans}) == len(plans)
    for technique in ON_DIGITS:
        loaded = techniques.load(technique, None)
        written = {name: part.written for name, part in loaded.parts.items()}
        assert {"precision": "float32", **written} in described


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_a_target_on_the_metric_after_quantization(tmp_path: Path, kind: str) -> None:
    """Steps to target are those of the first evaluation whose quantized metric is better."""
    file = file_of(tmp_path, "{quantize: {bits: 4, activations: 4, when: after}}")
    text = file.read_text().replace("validation_error < 0.3", "validation_error_w4a4 < 0.15")
    text = text.replace("60 steps", "150 steps")
    file.write_text(text + f"engine: {kind}\nstop_at_target: false\n")
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
