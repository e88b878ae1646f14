"""lora: adapters of low rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.experiments.transfer_cases import KINDS, file_weights, of_folder, twins
from tests.marks import quick
from tests.problems import engine, trials


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
