"""freeze: parameters that do not move."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.optimizers.groups import whole_name
from experiments.training.study_context import StudyContext
from tests.experiments.transfer_cases import KINDS, experiment, of_folder, twins
from tests.problems import engine, study, trials

FUSED = ["sgd", "momentum", "nesterov", "adamw", "rmsprop", "lars", "lamb", "muon", "signum"]


@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_layer_does_not_move_bit_for_bit(kind: str, optimizer: str) -> None:
    common = {"workload": "digits-mlp", "optimizer": optimizer, "schedule": "linear"}
    of = study(**common, technique={"freeze": ["0.*", "2.bias"], "clip": 0.5, "ema": 0.9})
    pack = trials(of, 3, weight_decay=0.1)
    one = engine(kind, of, pack)
    before = [one.weights(row) for row in range(3)]
    one.advance(9)
    one.evaluate("validation")
    one.keep([0, 2])
    one.add(trials(of, 1, seed=1))
    before = [before[0], before[2], one.weights(2)]
    one.advance(9)
    measured = one.measured(0)
    for row in range(3):
        after = one.weights(row)
        for name in ("0.weight", "0.bias", "2.bias"):
            assert torch.equal(before[row][name], after[name])
            assert row or torch.equal(before[row][name], measured[name])
        assert not torch.equal(before[row]["2.weight"], after["2.weight"])


def test_patterns_of_frozen_parameters() -> None:
    def begin(technique: dict[str, Any]) -> StudyContext:
        context = StudyContext.load(study(workload="digits-mlp", technique=technique))
        context.model(trials(context.study, 1)[0])
        return context

    with pytest.raises(ExperimentError, match=r"no parameter is called '0\.weigth'") as raised:
        begin({"freeze": "0.weigth"})
    assert raised.value.hint == "did you mean '0.weight'?"
    with pytest.raises(ExperimentError, match="freeze: no parameter is left that is trained"):
        begin({"freeze": "*"})
    written = {"freeze": {"parameters": "*", "trained": ["2.*", "0.bias"]}}
    assert begin(written).techniques.parts["freeze"].written == written["freeze"]


@pytest.mark.slow
def test_options_of_frozen_parameters_are_passed_over(trained: Path) -> None:
    of = of_folder(trained, "my.py:Grouped", technique={"freeze": "0.*"})
    assert twins(of, trials(of, 2), steps=20)
    adapted = of_folder(
        trained, "my.py:Grouped", technique={"lora": {"rank": 2, "trained": "0.bias"}}
    )
    assert twins(adapted, trials(adapted, 2), steps=20)
    assert whole_name("a.0.parametrizations.weight.original") == "a.0.weight"
    assert whole_name("a.0.weight") == "a.0.weight"


# freeze_out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adamw", "momentum"])
def test_layers_stop_one_after_the_other(kind: str, optimizer: str) -> None:
    technique: dict[str, Any] = {"freeze_out": {"first": 0.2, "last": 0.6}, "ema": 0.5}
    of = study(
        workload="digits-mlp", optimizer=optimizer, budget_steps=20, technique=technique, id="out"
    )
    pack = trials(of, 2, weight_decay=0.1)
    one = engine(kind, of, pack)
    weights = [one.weights(1)]
    for step in range(16):
        if step == 9:  # going on from a snapshot changes nothing
            resumed = engine(kind, of, pack)
            resumed.load(one.state())
            one = resumed
        one.advance(1)
        weights.append(one.weights(1))
    for name in weights[0]:
        stops = 4 if name.startswith("0.") else 12
        moved = [not torch.equal(a[name], b[name]) for a, b in itertools.pairwise(weights)]
        assert moved == [step < stops for step in range(16)]


@pytest.mark.slow
def test_engines_agree_where_layers_stop() -> None:
    technique: dict[str, Any] = {"freeze_out": 0.3, "clip": 0.1}
    of = study(workload="digits-mlp", optimizer="adam", precision="float64", technique=technique)
    pack = tuple(
        replace(trial, metaparameters={**trial.metaparameters, "freeze_out.first": first})
        for trial, first in zip(trials(of, 3), (0.0, 0.1, 0.3), strict=True)
    )
    twins(of, pack)


def test_the_share_is_of_the_budget(trained: Path) -> None:
    ids = []
    for budget in (20, 40):
        file = experiment(trained, "{freeze_out: 0.5}")
        file.write_text(file.read_text().replace("20 steps", f"{budget} steps"))
        (plan,) = load(file).plans()
        ids.append(plan.study.id)
    assert len(set(ids)) == 2
    with pytest.raises(ExperimentError, match="first is not after last"):
        load(experiment(trained, "{freeze_out: {first: 0.5, last: 0.2}}"))
