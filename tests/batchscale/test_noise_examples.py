"""The noise scale by gradients of single examples, against explicit ones of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import batchscale
from batchscale.noise.gradients import layers_of, of_examples


class Attention(nn.Module):
    """A small language model whose parameters are all in layers that have a formula."""

    def __init__(self, width: int = 8, rows: int = 5) -> None:
        super().__init__()
        self.tokens = nn.Embedding(rows, width, padding_idx=0)
        self.before = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.after = nn.RMSNorm(width)
        self.out = nn.Linear(width, rows)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        q, k, v = self.mixed(self.before(x)).chunk(3, -1)
        return self.out(self.after(x + (q @ k.mT).softmax(-1) @ v))


def loss(model: nn.Module, ids: Tensor) -> Tensor:
    """The mean over examples, each of which is the mean over its tokens."""
    return F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])


def explicit(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def of_example(weights: dict[str, Tensor], example: Tensor) -> Tensor:
        logits = functional_call(model, weights, (example[None, :-1],))
        return F.cross_entropy(logits.mT, example[None, 1:])

    return vmap(grad(of_example), in_dims=(None, 0))(weights, ids)


def terms(gradients: dict[str, Tensor]) -> tuple[float, float]:
    """Unbiased |G|² and tr(Σ) from all gradients."""
    flat = torch.cat([each.flatten(1) for each in gradients.values()], 1).double()
    trace = float(flat.var(0).sum())
    return float(flat.mean(0).square().sum()) - trace / len(flat), trace


@pytest.mark.parametrize("length", [3, 40])  # sums by pairs of tokens, and by gradients
def test_hooks_are_the_explicit_gradients(length: int) -> None:
    torch.manual_seed(0)
    model = Attention().double()
    noise = batchscale.NoiseScale(model, per_example=True)
    ids = torch.randint(0, 5, (6, length))
    with noise.micro_batch(6):
        loss(model, ids).backward()
    noise.step()
    given = noise.estimate()
    expected = terms(explicit(model, ids))
    assert (given.gradient_norm_squared, given.covariance_trace) == pytest.approx(expected)


def test_unequal_micro_batches_of_examples_are_one_batch() -> None:
    torch.manual_seed(0)
    model = Attention().double()
    noise = batchscale.NoiseScale(model, per_example=True)
    ids = torch.randint(0, 5, (6, 7))
    for part in (ids[:1], ids[1:]):
        with noise.micro_batch(len(part), scale=len(part)):
            (len(part) * loss(model, part)).backward()
    noise.step()
    assert noise.estimate().covariance_trace == pytest.approx(terms(explicit(model, ids))[1])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(4, 3), (5, 4)),
        (nn.Linear(4, 3), (5, 2, 3, 4)),
        (nn.LayerNorm((2, 4)), (5, 3, 2, 4)),
        (nn.LayerNorm(4, bias=False), (5, 4)),
        (nn.RMSNorm((2, 4), eps=1e-3), (5, 2, 4)),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_layers_of_any_shape(layer: Any, shape: tuple[int, ...], frozen: bool) -> None:
    torch.manual_seed(0)
    layer.weight.requires_grad_(not frozen)
    x = torch.randn(shape)
    out = layer(x)
    given = torch.randn(out.shape)
    own = [p for p in layer.parameters() if p.requires_grad]
    expected = [
        sum(
            (g.square().sum() for g in torch.autograd.grad(y, own, w, retain_graph=True)),
            torch.tensor(0.0),
        )
        for y, w in zip(out, given, strict=True)
        if own
    ]
    norms = of_examples(layer, x, given)
    assert torch.allclose(norms.float(), torch.stack(expected) if own else torch.zeros(5))


def test_bfloat16_and_autocast() -> None:
    """Norms are computed in float32 also where the backward pass is inside of autocast."""
    torch.manual_seed(0)
    ids = torch.randint(0, 5, (6, 7))
    model = Attention()
    expected = terms(explicit(model, ids))
    for cast in (False, True):
        each = model if cast else Attention().bfloat16()
        each.load_state_dict(model.state_dict())
        noise = batchscale.NoiseScale(each, per_example=True)
        with noise.micro_batch(6), torch.autocast("cpu", torch.bfloat16, enabled=cast):
            loss(each, ids).backward()
        noise.step()
        noise.remove()
        each.zero_grad()
        assert noise.estimate().covariance_trace == pytest.approx(expected[1], rel=0.03)


LENGTH = 16


def tokens(sequences: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens whose targets share a part within their sequence: of N(0, 1), and another each."""
    shared = torch.randn(sequences, 1, 1, generator=generator)
    each = torch.randn(sequences, LENGTH, 1, generator=generator)
    return torch.ones(sequences, LENGTH, 1), shared + each


def measured(flat: bool) -> batchscale.NoiseScale:
    """With a gradient of 1; the tokens as examples if ``flat``."""
    model, generator = nn.Linear(1, 1, bias=False), torch.Generator().manual_seed(0)
    nn.init.ones_(model.weight)
    noise = batchscale.NoiseScale(model, per_example=True, tokens_per_example=LENGTH)
    for _ in range(100):
        x, y = tokens(20, generator)
        x, y = (x.flatten(0, 1), y.flatten(0, 1)) if flat else (x, y)
        with noise.micro_batch(len(x)):
            ((model(x) - y).square().mean() / 2).backward()
        noise.step()
        model.zero_grad()
    return noise


def test_micro_batches_counted_in_tokens_are_those_of_sequences_in_tokens() -> None:
    given = []
    for each in (1, LENGTH):
        model, generator = nn.Linear(1, 1, bias=False), torch.Generator().manual_seed(0)
        nn.init.ones_(model.weight)
        noise = batchscale.NoiseScale(model, tokens_per_example=LENGTH)
        for _ in range(2):
            x, y = tokens(10, generator)
            with noise.micro_batch(10 * each):
                (model(x) - y).square().mean().backward()
        noise.step()
        given.append(noise.estimate(unit="tokens" if each == 1 else "examples").noise_scale)
    assert given[0] == pytest.approx(given[1])


def test_tokens_of_a_sequence_are_not_independent() -> None:
    """A sequence's gradient has the variance 1 + 1 / LENGTH, so the noise scale is LENGTH + 1."""
    right = measured(flat=False).estimate(unit="tokens")
    assert right.noise_scale == pytest.approx(LENGTH + 1, rel=0.1)
    assert right.low is not None
    assert right.high is not None
    assert right.low < LENGTH + 1 < right.high
    wrong = measured(flat=True).estimate()
    assert wrong.noise_scale == pytest.approx(2, rel=0.1)  # the variance of a token's


class Tied(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.out.weight = self.tokens.weight


class Functional(Attention):
    """Uses the embedding's weights as those of its last layer."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + F.linear(self.before(self.tokens(ids)), self.tokens.weight)


class Positions(Attention):
    def forward(self, ids: Tensor) -> Tensor:
        self.tokens(torch.arange(len(ids)) % 5)
        return super().forward(ids)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Tied, "per_example: tokens and out share a parameter"),
        (Own, r"per_example: no formula for the model itself \(Own\)"),
        (
            lambda: nn.Sequential(nn.Conv1d(1, 1, 1)),
            r"per_example: no formula for 0 \(Conv1d\): leave per_example out",
        ),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False)),
            "per_example: 0 mixes the examples",
        ),
        (lambda: nn.Embedding(3, 2, max_norm=1.0), "no formula for the model itself"),
    ],
)
def test_models_without_a_formula_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layers_of(make())


@pytest.mark.parametrize(
    ("make", "examples", "message"),
    [
        (Attention, 12, r"per_example: tokens gets \(6, 6\), not .* in micro_batch\(12\)"),
        (Positions, 6, r"per_example: tokens gets \(6,\), not \(examples, …\)"),
        (Functional, 6, "micro_batch: a second gradient of tokens"),
    ],
)
def test_use_that_the_formulae_do_not_cover_is_refused(
    make: Callable[[], Any], examples: int, message: str
) -> None:
    model = make()
    noise = batchscale.NoiseScale(model, per_example=True)
    with pytest.raises(ValueError, match=message), noise.micro_batch(examples):
        loss(model, torch.randint(0, 5, (6, 7))).backward()


def test_weights_that_are_used_elsewhere_too_are_refused() -> None:
    layer = nn.Linear(3, 3)
    noise = batchscale.NoiseScale(nn.Sequential(layer), per_example=True)
    with (
        pytest.raises(ValueError, match="the weights of 0 are used elsewhere too"),
        noise.micro_batch(2),
    ):
        F.linear(layer(torch.ones(2, 3)), layer.weight).sum().backward()


class Twice(nn.Module):
    """Uses the first layer's weights again; the head's are zero, as is the gradient before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, 3), nn.Linear(3, 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(self.first(x), self.first.weight))


def test_weights_used_elsewhere_are_seen_where_their_gradient_begins_as_zero() -> None:
    torch.manual_seed(0)
    model = Twice()
    noise = batchscale.NoiseScale(model, per_example=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        with noise.micro_batch(4):
            x = torch.randn(4, 3)
            (model(x) - x[:, :1]).square().mean().backward()
        noise.step()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with pytest.raises(ValueError, match="the weights of first are used elsewhere too"):
        step()


def test_an_average_of_the_weights_is_not_measured() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    noise = batchscale.NoiseScale(model, per_example=True)
    average = torch.optim.swa_utils.AveragedModel(model)
    with noise.micro_batch(2, scale=2):
        with torch.no_grad():
            average(torch.ones(2, 3))
        model(torch.tensor([[1.0, 0, 0], [0, 1, 0]])).sum().backward()
    noise.step()
    assert noise.estimate().covariance_trace == pytest.approx(3)
