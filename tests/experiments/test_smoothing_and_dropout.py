"""Label smoothing, dropout and stochastic depth: what they do, in both engines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workloads
from experiments import techniques
from experiments.techniques import Techniques
from tests.marks import quick
from tests.problems import engine, largest_difference, study, trials
from workloads.ghost import convert_batch_norm

KINDS = ["module", "stacked"]


def load(**described: Any) -> Techniques:
    return techniques.load(described, None)


# label_smoothing


def test_smoothed_targets_are_the_papers() -> None:
    """The loss is the cross entropy with the target distribution written out."""
    workload = workloads.load("digits-mlp")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(7, 64, generator=draw, dtype=torch.float64)
    y = torch.randint(10, (7,), generator=draw)
    model = workload.model().double()
    loss = load(label_smoothing=0.3).loss(workload, model, (x, y))
    target = torch.full((7, 10), 0.3 / 9, dtype=torch.float64)
    target[torch.arange(7), y] = 0.7
    expected = F.cross_entropy(model(x), target, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


def test_smoothing_of_each_token() -> None:
    workload = workloads.load("lm-transformer", {"context": 8, "width": 8, "heads": 2})
    ids = torch.randint(256, (3, 9), generator=torch.Generator().manual_seed(0))
    batch = (ids[:, :-1], ids[:, 1:])
    model = workload.model().double().eval()
    loss = load(label_smoothing=0.2).loss(workload, model, batch)
    logits = model(batch[0])
    classes = logits.shape[-1]
    target = torch.full_like(logits, 0.2 / (classes - 1))
    target.scatter_(-1, batch[1].unsqueeze(-1), 0.8)
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(0, 1), reduction="none")
    torch.testing.assert_close(loss, expected.view(3, 8).mean(1), rtol=1e-10, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_not_smoothed(kind: str) -> None:
    smoothed = study(workload="digits-mlp", technique={"label_smoothing": 0.5})
    plain = study(workload="digits-mlp")
    pack = trials(plain, 2)
    metrics = [engine(kind, of, pack).evaluate("validation") for of in (smoothed, plain)]
    assert metrics[0] == metrics[1]


# dropout


def test_dropout_sets_rates_or_is_put_behind_activations() -> None:
    text = workloads.load("lm-transformer", {"context": 8, "width": 8, "heads": 2})
    model = load(dropout=0.3).model(text.model())
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert rates == [0.3] * 3
    mlp = workloads.load("digits-mlp").model()
    names = list(dict(mlp.named_parameters()))
    model = load(dropout=0.3).model(mlp)
    assert list(dict(model.named_parameters())) == names
    assert [type(module) for module in model[1]] == [nn.ReLU, nn.Dropout]  # type: ignore[index]


@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_dropout_is_that_of_training_alone(kind: str) -> None:
    dropped = study(workload="digits-mlp", technique={"dropout": 0.5}, precision="float64")
    plain = study(workload="digits-mlp", precision="float64")
    pack = trials(plain, 2)
    of_dropped, of_plain = engine(kind, dropped, pack), engine(kind, plain, pack)
    assert of_dropped.evaluate("validation") == of_plain.evaluate("validation")
    for each in (of_dropped, of_plain):
        each.advance(5)
    assert largest_difference(of_dropped.weights(0), of_plain.weights(0)) > 1e-3


def test_dropout_zeroes_the_share_that_was_asked() -> None:
    model = load(dropout=0.25).model(nn.Sequential(nn.Linear(8, 8), nn.Tanh())).train()
    torch.manual_seed(0)
    out = model(torch.randn(4_000, 8))
    share = float((out == 0).double().mean())
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / out.numel()) ** 0.5


# stochastic_depth


class _Residual(nn.Module):
    """A residual branch that adds 1 to each example, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.second(self.first(torch.ones_like(x)))
        return x + added


def test_branches_are_left_out_by_the_linear_rule() -> None:
    model = load(stochastic_depth=0.5).model(nn.Sequential(_Residual(), _Residual()))
    torch.manual_seed(0)
    x = torch.zeros(20_000, 1)
    assert torch.equal(model.eval()(x), torch.full_like(x, 2.0))
    with torch.no_grad():
        first = model[0].train()(x)  # type: ignore[index]
        second = model[1].train()(x)  # type: ignore[index]
    for out, rate in ((first, 0.25), (second, 0.5)):
        kept = out != 0
        assert torch.equal(out[kept].unique(), torch.tensor([1 / (1 - rate)]))
        deviation = (rate * (1 - rate) / len(x)) ** 0.5
        assert abs(float((~kept).double().mean()) - rate) < 4 * deviation


def test_whole_examples_are_left_out() -> None:
    technique = {"rate": 0.5, "rule": "uniform"}
    model = load(stochastic_depth=technique).model(nn.Sequential(_Residual())).train()
    torch.manual_seed(0)
    out = model(torch.zeros(50, 3, 4))
    assert {*out.flatten(1).unique(dim=0).flatten().tolist()} == {0.0, 2.0}
    assert torch.equal(out.flatten(1).amin(1), out.flatten(1).amax(1))


@pytest.mark.parametrize(
    ("name", "fields", "branches"),
    [
        ("cifar10-resnet18", {"width": 4}, 8),
        ("imagenet-resnet50", {"width": 4}, 16),
        ("cifar10-resnet8", {}, 3),
        ("lm-transformer", {"layers": 3}, 6),
    ],
)
def test_residual_networks_are_known(name: str, fields: dict[str, Any], branches: int) -> None:
    """Behind batch norm it stays where that is converted to ghost batches."""
    model = workloads.load(name, fields).model()
    names = list(dict(model.named_parameters()))
    changed = convert_batch_norm(load(stochastic_depth=0.1).model(model), 4)
    hooks = [hook for m in changed.modules() for hook in m._forward_hooks.values()]
    assert len(hooks) == branches
    assert list(dict(changed.named_parameters())) == names


def test_torchs_transformer_and_named_branches() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    changed = load(stochastic_depth={"rate": 0.999, "rule": "uniform"}).model(layer).train()
    x = torch.randn(40, 3, 8)
    out = changed(x)
    left = [torch.allclose(out[i], layer.norm2(layer.norm1(x[i])), atol=1e-6) for i in range(40)]
    assert sum(left) > 30
    named = load(stochastic_depth={"rate": 0.1, "branches": ["*.second"]})
    model: Any = named.model(nn.Sequential(_Residual(), _Residual()))
    assert [len(block.second._forward_hooks) for block in model] == [1, 1]
