"""freeze: parameters that do not move."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.optimizers.groups import whole_name
from experiments.training.study_context import StudyContext
from tests.experiments.transfer_cases import KINDS, of_folder, twins
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
    written = {"parameters": "*", "trained": ["2.*", "0.bias"]}
    of = study(workload="digits-mlp", technique={"freeze": written})
    assert StudyContext.load(of).techniques.parts["freeze"].written == written


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
