"""freeze and lora: parameters that do not move, and adapters of low rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments import techniques
from experiments.optimizers.groups import whole_name
from experiments.plan import WorkloadRef
from tests.experiments.transfer_cases import KINDS, file_weights, of_folder, twins
from tests.marks import quick
from tests.problems import engine, study, trials

FUSED = ["sgd", "momentum", "nesterov", "adamw", "rmsprop", "lars", "lamb", "muon", "signum"]


@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_layer_does_not_move_bit_for_bit(kind: str, optimizer: str) -> None:
    # muon takes the last matrix for the output layer's, and needs another.
    workload = WorkloadRef(spec="digits-fc", fields={"widths": [64, 16]})
    common = {"workload": workload, "optimizer": optimizer, "schedule": "linear"}
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


def test_a_tied_parameter_has_all_its_names() -> None:
    lora, one = {"rank": 1, "layers": "2", "trained": "1.*"}, {"parameters": "*", "trained": "1.*"}
    for described, moving in ({"freeze": "1.*"}, 3), ({"freeze": one}, 2), ({"lora": lora}, 4):
        tied = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
        tied[1].weight = tied[0].weight
        (part,) = techniques.load(described, None)
        trained = [p.requires_grad for p in part.model(tied).parameters()]
        assert (trained[0], sum(trained)) == (described != {"freeze": "1.*"}, moving)


@pytest.mark.slow
def test_options_of_frozen_parameters_are_passed_over(trained: Path) -> None:
    of = of_folder(trained, "grouped.py:Grouped", technique={"freeze": "0.*"})
    assert twins(of, trials(of, 2), steps=20)
    adapted = of_folder(
        trained, "grouped.py:Grouped", technique={"lora": {"rank": 2, "trained": "0.bias"}}
    )
    assert twins(adapted, trials(adapted, 2), steps=20)
    assert whole_name("a.0.parametrizations.weight.original") == "a.0.weight"
    assert whole_name("a.0.weight") == "a.0.weight"


def effective(weights: dict[str, Tensor], layer: str, scale: float = 1.0) -> Tensor:
    """The weight of a layer with its adapter."""
    place = f"{layer}.parametrizations.weight"
    product = weights[f"{place}.0.B"] @ weights[f"{place}.0.A"]
    return weights[f"{place}.original"] + scale * product


@pytest.mark.parametrize("rank", quick([1, 3], 1))
def test_an_adapter_has_the_rank_that_was_asked_for(trained: Path, rank: int) -> None:
    technique: dict[str, Any] = {
        "fine_tune": "first.safetensors",
        "lora": {"rank": rank, "alpha": 2 * rank},
    }
    of = of_folder(trained, technique=technique, optimizer="adamw")
    first = file_weights(trained)
    for weights in twins(of, trials(of, 3, learning_rate=0.01)):
        for layer in ("0", "2"):
            original = weights[f"{layer}.parametrizations.weight.original"]
            assert torch.equal(original, first[f"{layer}.weight"].double())
            assert torch.equal(weights[f"{layer}.bias"], first[f"{layer}.bias"].double())
            moved = effective(weights, layer, scale=2.0) - original
            assert torch.linalg.matrix_rank(moved, atol=1e-10) == rank


@pytest.mark.slow
def test_adapters_begin_at_the_model(trained: Path) -> None:
    common: dict[str, Any] = {"fine_tune": "first.safetensors"}
    plain, adapted = (
        of_folder(trained, technique=technique) for technique in (common, {**common, "lora": 2})
    )
    for kind in KINDS:
        metrics = [
            engine(kind, of, trials(of, 2)).evaluate("validation") for of in (plain, adapted)
        ]
        assert metrics[0] == metrics[1]


@pytest.mark.slow
def test_which_layers_are_adapted(trained: Path) -> None:
    technique: dict[str, Any] = {"lora": {"rank": 2, "trained": "2.*"}}
    of = of_folder(trained, technique=technique)
    pack = trials(of, 2)
    (first, _), start = twins(of, pack), engine("module", of, pack).weights(0)
    assert "0.parametrizations.weight.0.A" in first
    assert torch.equal(first["0.bias"], start["0.bias"])
    assert not torch.equal(first["2.weight"], start["2.weight"])
