"""Techniques on weights and gradients do what they say: decay, noise, averages, pruning, grids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import workloads
from experiments import techniques
from experiments.plan import WorkloadRef
from experiments.techniques import Step
from experiments.techniques.quantize import QuantizedLinear, rounded
from experiments.training.study_context import StudyContext
from tests.experiments import layout_workloads
from tests.problems import engine, largest_difference, study, trials

KINDS = ["module", "stacked"]


# weight_decay


@pytest.mark.parametrize("kind", KINDS)
def test_decoupled_decay_is_adamws(kind: str) -> None:
    """With a schedule, of all parameters; it adds to the optimizer's own, before ``lookahead``."""
    common: dict[str, Any] = {"optimizer": "adamw", "schedule": "cosine", "precision": "float64"}
    (trial,) = trials(study(**common), 1, weight_decay=0.3)
    for technique, other in ((0.2, {}), (0.3, {}), (0.3, {"lookahead": 6})):
        values = {**trial.metaparameters, "weight_decay": 0.3 - technique}
        described = {**other, "weight_decay": {"rate": technique, "of": "all"}}
        ours = study(**common, technique=described)
        pack = (replace(trial, metaparameters=values),) * 2
        torchs = engine(kind, study(**common, technique=other), (trial,), steps=20).measured(0)
        assert largest_difference(engine(kind, ours, pack, steps=20).measured(0), torchs) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_coupled_decay_is_torchs_behind_clipping(kind: str) -> None:
    common: dict[str, Any] = {"optimizer": "sgd", "precision": "float64"}
    bare, decayed = (
        trials(study(**common), 2, learning_rate=0.1, weight_decay=decay) for decay in (0.0, 0.2)
    )
    described = {"rate": 0.2, "kind": "coupled", "of": "all"}
    ours = study(**common, technique={"clip": 0.01, "weight_decay": described})
    torchs = engine(kind, study(**common, technique={"clip": 0.01}), decayed, steps=20).weights(1)
    assert largest_difference(engine(kind, ours, bare, steps=20).weights(1), torchs) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_decay_has_the_default_rate_of_an_optimizer_whose_rate_is_not_given(kind: str) -> None:
    of = study(optimizer="SGD", technique={"weight_decay": 0.5})
    given = trials(of, 2, learning_rate=1e-3, momentum=0.0, weight_decay=0.0)  # torch's
    pack = tuple(replace(t, metaparameters={}) for t in given)
    weights = [engine(kind, of, each, steps=5).weights(1) for each in (pack, given)]
    assert largest_difference(*weights) < 1e-6


def test_decay_spares_norms_biases_and_embeddings() -> None:
    small = {"context": 4, "width": 8, "heads": 1, "layers": 1}
    model = workloads.load("lm-transformer", small).model()
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    (part,) = techniques.load({"weight_decay": 0.5}, None)
    decayed = set(part.start(weights))
    assert decayed == {n for n in weights if n.endswith("weight") and "mlp." in n} | {
        n for n in weights if "attention." in n and n.endswith("weight")
    }
    (every,) = techniques.load({"weight_decay": {"rate": 0.5, "of": "all"}}, None)
    assert set(every.start(weights)) == set(weights)


@pytest.mark.parametrize(
    "described",
    [{"weight_decay": {"rate": 0.5, "of": "all"}}, {"prune": 0.5},
     {"weight_decay": {"rate": 0.5, "kind": "coupled"}},
     {"prune": {"sparsity": 0.5, "by": "gradient"}}],
)  # fmt: skip
def test_a_weight_that_no_example_uses_has_no_gradient(
    described: dict[str, Any], tmp_path: Path
) -> None:
    """Nor has it one in torch's optimizers, whose decay leaves it as it is."""
    (tmp_path / "partly.py").write_text(layout_workloads.FILE)
    workload = WorkloadRef(spec="partly.py:Partly", base=str(tmp_path))
    before, after = (
        engine("module", of, trials(of, 1, learning_rate=0.1), steps=steps).weights(0)
        for of in [study(workload=workload, batch_size=8, technique=described)]
        for steps in (1, 4)
    )
    assert torch.equal(after["third.weight"], before["third.weight"])
    assert not torch.equal(after["first.weight"], before["first.weight"])


# gradient_noise


def test_noise_is_normal_annealed_and_the_trials() -> None:
    (part,) = techniques.load({"gradient_noise": {"variance": 0.04, "decay": 1.0}}, None)
    gradients = {"a": torch.zeros(200, 100, dtype=torch.float64), "b": torch.zeros(50)}

    def noise(seed: int, step: int) -> dict[str, Tensor]:
        numbers = Step(torch.tensor(step), torch.tensor(0.1), torch.tensor(seed))
        return dict(part.gradient(gradients, gradients, {}, numbers))

    first = noise(1, 0)
    a = first["a"]
    assert abs(float(a.mean())) < 4 * 0.2 / a.numel() ** 0.5
    assert float(a.std()) == pytest.approx(0.2, rel=0.02)
    assert float((a.abs() < 0.2).double().mean()) == pytest.approx(0.6827, abs=0.015)
    assert float(noise(1, 3)["a"].std()) == pytest.approx(0.1, rel=0.02)
    assert torch.equal(noise(1, 0)["a"], a)
    streams = [a, noise(2, 0)["a"], noise(1, 1)["a"]]
    for i, x in enumerate(streams):
        for y in streams[:i]:
            correlation = torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]
            assert abs(float(correlation)) < 0.03
    assert len({*a.flatten()[:50].tolist()} & {*first["b"].double().tolist()}) == 0


# Averages


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("technique", "begin", "every", "average"),
    [
        ({"swa": {"begin": 0.1, "every": 3}}, 10, 3, None),
        ({"ema": 0.8}, 1, 1, get_ema_multi_avg_fn(0.8)),
    ],
    ids=["swa", "ema"],
)
def test_averages_are_torchs_and_are_measured(
    kind: str, technique: dict[str, Any], begin: int, every: int, average: Any
) -> None:
    of = study(technique=technique, precision="float64", budget_steps=100)
    pack = trials(of, 2)
    made, context = engine(kind, of, pack), StudyContext.load(of)
    averaged: AveragedModel | None = None
    for step in range(1, 22):
        made.advance(1)
        if step >= begin and (step - begin) % every == 0:
            model = context.model(pack[1])
            model.load_state_dict(made.weights(1))
            averaged = averaged or AveragedModel(model, multi_avg_fn=average)
            averaged.update_parameters(model)
        if step == begin - 1:
            assert largest_difference(made.measured(1), made.weights(1)) == 0
    assert averaged is not None
    expected = dict(averaged.module.state_dict())
    assert largest_difference(made.measured(1), expected) < 1e-12
    assert largest_difference(made.weights(1), expected) > 1e-6
    plain = engine(kind, replace(of, technique={"precision": "float64"}), pack, steps=21)
    assert largest_difference(made.weights(1), plain.weights(1)) == 0  # training does not see it
    x, y = context.splits["validation"].fetch(torch.arange(500), training=False)
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(averaged.module(x), y))
    for rows in (None, [1]):
        measured = made.evaluate("validation", rows)[-1]["cross_entropy"]
        assert measured == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_lookahead_goes_on_from_the_slow_weights(kind: str) -> None:
    common: dict[str, Any] = {"precision": "float64", "optimizer": "sgd"}
    of = study(**common, technique={"lookahead": {"every": 4, "share": 0.3}})
    pack = trials(of, 2, weight_decay=0.0)
    start = engine(kind, of, pack).weights(1)
    fast = engine(kind, study(**common), pack, steps=4).weights(1)
    slow = {name: start[name] + 0.3 * (fast[name] - start[name]) for name in fast}
    made = engine(kind, of, pack, steps=3)
    assert largest_difference(made.measured(1), start) == 0
    made.advance(1)
    assert largest_difference(made.weights(1), slow) < 1e-12
    assert largest_difference(made.measured(1), slow) < 1e-12
    made.advance(2)
    assert largest_difference(made.measured(1), slow) < 1e-12
    assert largest_difference(made.weights(1), slow) > 1e-6


# prune


def zeros(weights: dict[str, Tensor], name: str) -> int:
    return int((weights[name] == 0).sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "technique",
    [
        {"prune": 0.9},
        {"prune": {"sparsity": 0.9, "by": "random"}},
        {"prune": 0.9, "ema": 0.9},
        {"prune": 0.9, "lookahead": 3, "gradient_noise": 0.1},
    ],
    ids=str,
)
def test_sparsity_is_what_was_asked_at_every_evaluation(
    kind: str, technique: dict[str, Any]
) -> None:
    of = study(workload="digits-mlp", optimizer="momentum", technique=technique)
    pack = trials(of, 2, learning_rate=0.1)
    made, masks = engine(kind, of, pack), []
    for steps in (0, 1, 6):
        made.advance(steps)
        for weights in (made.weights(1), made.measured(1)):
            masks.append({name: weights[name] != 0 for name in ("0.weight", "2.weight")})
            assert zeros(weights, "0.weight") == round(0.9 * 64 * 64)
            assert zeros(weights, "2.weight") == round(0.9 * 640)
            assert zeros(weights, "0.bias") == zeros(weights, "2.bias") == 0
    for mask in masks:
        assert all(torch.equal(mask[name], masks[0][name]) for name in mask)
    other = engine(kind, of, pack).weights(0)["0.weight"] != 0
    assert not torch.equal(other, masks[0]["0.weight"])  # each trial has a choice of its own


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["magnitude", "random"])
def test_gradual_sparsity_is_cubic(kind: str, by: str) -> None:
    described = {"sparsity": 0.8, "by": by, "begin": 0.1, "until": 0.5, "stages": 4}
    technique = {"prune": described, "ema": 0.9}
    of = study(workload="digits-softmax", technique=technique, budget_steps=40)
    made = engine(kind, of, trials(of, 2, learning_rate=0.1))
    pruned = torch.zeros(10, 64, dtype=torch.bool)
    for step in range(1, 26):
        made.advance(1)
        stage = min(4, max(0, (step - 4) // 4))
        expected = round(0.8 * (1 - (1 - stage / 4) ** 3) * 640)
        for weights in (made.weights(1), made.measured(1)):
            assert zeros(weights, "0.weight") == expected
        now = made.weights(1)["0.weight"] == 0
        assert bool(now[pruned].all())  # what is pruned stays so
        pruned = now


def test_what_is_pruned_is_the_least() -> None:
    model = workloads.load("digits-mlp").model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    (part,) = techniques.load({"prune": {"sparsity": 0.7, "scope": "model"}}, None)
    after = dict(part.model(model).named_parameters())
    names = ("0.weight", "2.weight")
    size = torch.cat([before[name].abs().flatten() for name in names])
    kept = torch.cat([after[name].detach().flatten() for name in names]) != 0
    assert int((~kept).sum()) == round(0.7 * len(size))
    assert size[kept].min() > size[~kept].max()
    for name in names:
        assert torch.equal(after[name][after[name] != 0], before[name][after[name] != 0])


@pytest.mark.parametrize("kind", KINDS)
def test_units_are_the_rows_of_least_norm_and_spare_the_last_layer(kind: str) -> None:
    technique = {"prune": {"sparsity": 0.25, "structure": "units"}}
    of = study(workload="digits-mlp", technique=technique)
    pack = trials(of, 2)
    dense = engine(kind, study(workload="digits-mlp"), pack).weights(1)["0.weight"]
    least = {*dense.norm(dim=1).argsort()[:16].tolist()}
    made = engine(kind, of, pack, steps=5)
    rows = (made.measured(1)["0.weight"] == 0).all(1)
    assert {*rows.nonzero().flatten().tolist()} == least
    assert zeros(made.measured(1), "2.weight") == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_snip_takes_the_gradient_of_the_first_batch(kind: str) -> None:
    technique = {"prune": {"sparsity": 0.6, "by": "gradient"}}
    common: dict[str, Any] = {"workload": "digits-mlp", "precision": "float64", "optimizer": "sgd"}
    of = study(**common, technique=technique)
    pack = trials(of, 2, learning_rate=1.0, weight_decay=0.0)
    start = engine(kind, study(**common), pack).weights(1)
    moved = engine(kind, study(**common), pack, steps=1).weights(1)
    made = engine(kind, of, pack, steps=1)
    names = ("0.weight", "2.weight")
    # At learning rate 1 a step of SGD is the gradient.
    scores = torch.cat([((start[n] - moved[n]) * start[n]).abs().flatten() for n in names])
    chosen = scores.argsort(descending=True)[: len(scores) - round(0.6 * len(scores))]
    after = made.weights(1)
    kept = torch.cat([after[n].flatten() for n in names])
    assert {*kept.nonzero().flatten().tolist()} == {*chosen.tolist()}
    for name, value in after.items():  # no weight that stays has moved
        assert torch.equal(value[value != 0], start[name][value != 0])
    made.advance(5)
    later = torch.cat([made.measured(1)[n].flatten() for n in names])
    assert torch.equal(later != 0, kept != 0)
    assert largest_difference(made.weights(1), after) > 1e-3


# quantize


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_stand_on_the_grid_of_their_row(bits: int) -> None:
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = rounded(x, bits)
    most = 2 ** (bits - 1) - 1
    scale = x.detach().abs().amax(1, keepdim=True) / most
    levels = (y / scale).detach()
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
    assert float(levels.abs().max()) == pytest.approx(most)
    assert all(len(row.unique()) <= 2 * most + 1 for row in y.detach())
    assert bool(((y - x).detach().abs() <= scale / 2 * 1.0001).all())
    (y * torch.arange(40.0)).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.arange(40.0).expand(5, 40))  # straight through
    assert torch.equal(rounded(torch.zeros(2, 3), bits), torch.zeros(2, 3))


def test_what_is_multiplied_are_the_rounded_weights() -> None:
    linear = nn.Linear(6, 3)
    (part,) = techniques.load({"quantize": {"bits": 4, "activations": 8}}, None)
    quantized = part.model(linear)
    assert isinstance(quantized, QuantizedLinear)
    assert dict(quantized.named_parameters()).keys() == {"weight", "bias"}
    x = torch.randn(7, 6)
    expected = rounded(x, 8) @ rounded(linear.weight, 4).T + linear.bias
    torch.testing.assert_close(quantized(x), expected)
    torch.testing.assert_close(quantized(x)[2:3], quantized(x[2:3]))  # no example needs the others


def test_a_layer_is_rounded_under_all_its_names_with_its_hooks_and_in_torchs_transformer() -> None:
    (part,) = techniques.load({"quantize": 4}, None)
    linear, x = nn.Linear(6, 6, bias=False), torch.randn(2, 3, 6)
    linear.register_forward_hook(lambda *given: given[-1] + 1)
    twice = (x @ rounded(linear.weight, 4).T + 1) @ rounded(linear.weight, 4).T + 1
    torch.testing.assert_close(part.model(nn.Sequential(linear, linear))(x), twice)
    one = part.model(nn.TransformerEncoderLayer(6, 2, 8, 0, batch_first=True)).requires_grad_(False)
    torch.testing.assert_close(one.eval()(x), one.train()(x))


@pytest.mark.parametrize("kind", KINDS)
def test_after_training_both_are_measured(kind: str) -> None:
    common: dict[str, Any] = {"workload": "digits-mlp", "precision": "float64"}
    technique = {"quantize": {"bits": 4, "activations": 8, "when": "after"}}
    of, plain = study(**common, technique=technique), study(**common)
    pack = trials(of, 2, learning_rate=0.3)
    made, without = engine(kind, of, pack, steps=40), engine(kind, plain, pack, steps=40)
    metrics, expected = made.evaluate("validation")[1], without.evaluate("validation")[1]
    assert {name: metrics[name] for name in expected} == expected
    (part,) = techniques.load({"quantize": {"bits": 4, "activations": 8}}, None)
    workload = workloads.load("digits-mlp")
    model = part.model(workload.model()).double().eval()
    model.load_state_dict(made.weights(1))
    x, y = workload.data()["validation"]  # type: ignore[misc]
    with torch.no_grad():
        output = workload.forward(model, (x.double(), y))
        after = workload.metrics(output, (x.double(), y))
    for name, value in after.items():
        assert isinstance(value, Tensor)
        assert metrics[f"{name}_w4a8"] == pytest.approx(float(value.mean()), rel=1e-9)
    assert metrics["cross_entropy_w4a8"] != metrics["cross_entropy"]


@pytest.mark.parametrize("kind", KINDS)
def test_aware_training_is_measured_as_rounded(kind: str) -> None:
    common: dict[str, Any] = {"workload": "digits-mlp", "precision": "float64"}
    of = study(**common, technique={"quantize": 4})
    made = engine(kind, of, trials(of, 2, learning_rate=0.3), steps=20)
    model = workloads.load("digits-mlp").model().double().eval()
    weights = {
        name: rounded(value, 4) if name.endswith("weight") else value
        for name, value in made.weights(1).items()
    }
    model.load_state_dict(weights)
    x, y = workloads.load("digits-mlp").data()["validation"]  # type: ignore[misc]
    with torch.no_grad():
        error = float((model(x.double()).argmax(1) != y).double().mean())
    assert made.evaluate("validation")[1]["error"] == pytest.approx(error)
