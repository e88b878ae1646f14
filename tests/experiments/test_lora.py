"""lora and layer_rates: adapters of low rank, and a learning rate for each layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments import techniques
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.optimizers.base import RATE_FACTOR
from experiments.optimizers.groups import parameter_options
from experiments.techniques.transfer.layer_rates import layers_of
from experiments.training.study_context import StudyContext
from tests.experiments.transfer_cases import KINDS, experiment, file_weights, of_folder, twins
from tests.marks import quick
from tests.problems import engine, study, trials

# layer_rates


@pytest.mark.slow
def test_each_layer_has_its_rate(trained: Path) -> None:
    """A step of SGD is the learning rate times the gradient, and the factor of the layer."""
    plain, decayed = (
        of_folder(trained, technique=technique) for technique in ({}, {"layer_rates": 0.25})
    )
    for kind in KINDS:
        engines = [engine(kind, of, trials(of, 2, weight_decay=0.0)) for of in (plain, decayed)]
        start = engines[0].weights(1)
        for each in engines:
            each.advance(1)
        full, slow = (each.weights(1) for each in engines)
        for name, value in start.items():
            factor = 0.25 if name.startswith("0.") else 1.0
            torch.testing.assert_close(slow[name] - value, factor * (full[name] - value))
    other = replace(decayed, optimizer="adamw", schedule="linear")
    twins(other, trials(other, 3))


def test_rates_multiply_those_of_the_workload(trained: Path) -> None:
    context = StudyContext.load(of_folder(trained, "my.py:Grouped", technique={"layer_rates": 0.1}))
    model = context.model(trials(context.study, 1)[0])
    options = parameter_options(
        context.optimizer, context.workload, dict(model.named_parameters()), context.techniques
    )
    factors = {name: of[RATE_FACTOR] for name, of in options.items()}
    assert factors == pytest.approx(
        {"0.weight": 0.3, "0.bias": 0.3, "2.weight": 0.5, "2.bias": 1.0}
    )
    assert twins(context.study, trials(context.study, 2), steps=20)


def test_layers_are_in_the_order_of_the_model() -> None:
    names = [
        "token", "embedding.weight", "encoder.layers.0.mlp.1.bias", "encoder.layers.0.norm.weight",
        "encoder.layers.1.norm.weight", "head.weight", "head.bias",
    ]  # fmt: skip
    layers = layers_of(names)
    assert list(layers) == ["token", "embedding", "encoder.layers.0", "encoder.layers.1", "head"]
    assert layers["head"] == names[-2:]
    factors = (
        techniques.load({"layer_rates": 0.5}, None)
        .parts["layer_rates"]
        .parameter_groups(dict.fromkeys(names, torch.zeros(1)))
    )
    assert [of[RATE_FACTOR] for of in factors.values()] == [2**-4, 2**-3, 0.25, 0.25, 0.5, 1, 1]


def test_arguments_of_what_changes_the_model_are_not_tuned_in_a_stack() -> None:
    of = study(workload="digits-mlp", technique={"layer_rates": 0.5})
    fixed: dict[str, Any] = {"layer_rates.decay": 0.1}
    pack = trials(of, 8, **fixed)
    reason = StudyContext.load(of).techniques.unstackable(pack[0].metaparameters)
    assert reason == "technique layer_rates: one of its arguments is tuned"
    start, slow = (engine("module", of, pack[:1]) for _ in range(2))
    slow.advance(1)
    free = engine("module", of, (replace(pack[0], metaparameters={
        **pack[0].metaparameters, "layer_rates.decay": 1.0
    }),))  # fmt: skip
    free.advance(1)
    moves = [each.weights(0)["0.weight"] - start.weights(0)["0.weight"] for each in (slow, free)]
    torch.testing.assert_close(moves[0], 0.1 * moves[1], rtol=1e-3, atol=1e-7)


# lora


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
    errors: list[tuple[dict[str, Any], str]] = [
        ({"lora": 11}, "rank 11 is more than layer 2 has, 10 × 64"),
        ({"lora": {"rank": 1, "layers": "3"}}, "no linear layer is called '3'"),
        ({"lora": {"rank": 1, "trained": "*.weight"}}, "no linear layer that is not trained"),
        ({"lora": {"rank": 1, "trained": "x"}}, "no parameter is called 'x'"),
    ]
    for wrong, message in errors:
        with pytest.raises(ExperimentError, match=message):
            engine("module", of_folder(trained, technique=wrong), pack)


@pytest.mark.parametrize("technique", ["lora: 2", "distill: first.safetensors"])
def test_what_needs_whole_weights_and_outputs(trained: Path, technique: str) -> None:
    file = experiment(trained, f"{{{technique}}}")
    file.write_text(file.read_text() + "layout: shard\nworkers: 2\n")
    with pytest.raises(ExperimentError, match=r"technique (lora|distill) needs whole"):
        load(file)
