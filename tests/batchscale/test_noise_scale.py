"""The noise scale by two batch sizes, against problems whose answer is known."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import batchscale
from results.noise_estimate import estimate
from tests.marks import quick
from tests.test_imports import MODULES, imported, imports_between_modules

DIMENSION, NOISE = 6, 0.5
DISTANCE = torch.linspace(0.1, 0.6, DIMENSION, dtype=torch.float64)
"""Of the weights from the true ones, which are 0: the expected gradient."""
SQUARED = float(DISTANCE.square().sum())
TRACE = (DIMENSION + 1) * SQUARED + DIMENSION * NOISE**2
"""tr(Σ) of the gradient x (x·δ - ε) with x ~ N(0, 1), ε ~ N(0, NOISE²)."""


def regression() -> Any:
    model = nn.Linear(DIMENSION, 1, bias=False, dtype=torch.float64)
    model.weight.data = DISTANCE.clone()[None]
    return model


def errors(model: Any, examples: int, generator: torch.Generator) -> Tensor:
    """Half the squared errors of new examples."""
    x = torch.randn(examples, DIMENSION, generator=generator, dtype=torch.float64)
    y = NOISE * torch.randn(examples, 1, generator=generator, dtype=torch.float64)
    return (model(x) - y).square().sum(1) / 2


def measured(
    sizes: Sequence[int], scales: Sequence[float], steps: int, seed: int = 0
) -> batchscale.NoiseScale:
    """Of steps at the same weights."""
    model, generator = regression(), torch.Generator().manual_seed(seed)
    noise = batchscale.NoiseScale(model)
    for _ in range(steps):
        for examples, scale in zip(sizes, scales, strict=True):
            with noise.micro_batch(examples, scale=scale):
                (scale * errors(model, examples, generator).mean()).backward()
        noise.step()
        model.zero_grad()
    return noise


def standard_error(values: Sequence[float]) -> tuple[float, float]:
    each = torch.tensor(values, dtype=torch.float64)
    return float(each.mean()), float(each.std()) / math.sqrt(len(values))


def test_a_users_program_loads_torch_and_nothing_else_of_ours() -> None:
    graph = imports_between_modules()
    ours = {name for name in graph if name.startswith("batchscale.noise")}
    ours.add("results.noise_estimate")
    assert set().union(*(graph[name] for name in ours)) <= ours
    files = [path for path in MODULES if path.parts[-3:-1] == ("batchscale", "noise")]
    outside = {name for path in files for name in imported(path)}
    assert outside - sys.stdlib_module_names == {"batchscale", "results", "torch"}


CONVENTIONS = [
    ((10, 20, 50), (1.0, 1.0, 1.0)),  # the gradient is a mean of means
    ((10, 20, 50), (10.0, 20.0, 50.0)),  # losses are sums
    ((20, 20, 20, 20), (1.0, 1.0, 1.0, 1.0)),
    ((20, 20), (0.5, 0.5)),  # the loss is divided by the number of micro-batches
    ((30, 10), (65536.0, 32768.0)),  # a GradScaler's
]


@pytest.mark.parametrize(("sizes", "scales"), quick(CONVENTIONS, 2))
def test_both_terms_are_unbiased(sizes: Sequence[int], scales: Sequence[float]) -> None:
    rows = [row[0] for row in measured(sizes, scales, steps=400)._rows]
    for values, truth in zip(zip(*rows, strict=True), (SQUARED, TRACE), strict=True):
        mean, error = standard_error(values)
        assert abs(mean - truth) < 3 * error
        assert error < 0.06 * truth  # or it would show nothing


def by_definition(parts: Sequence[Tensor]) -> tuple[float, float]:
    """|G|² and tr(Σ) from gradients of single examples in parts of one size, as in appendix A.1."""
    small, big = len(parts[0]), sum(map(len, parts))
    of_small = sum(float(part.mean(0).square().sum()) for part in parts) / len(parts)
    of_big = float(torch.cat(list(parts)).mean(0).square().sum())
    squared = (big * of_big - small * of_small) / (big - small)
    return squared, (of_small - of_big) / (1 / small - 1 / big)


def test_equal_micro_batches_are_the_papers_formulae() -> None:
    model = regression()
    noise = batchscale.NoiseScale(model)
    parts = []
    for seed in range(3):
        for i in range(4):
            kept = torch.Generator().manual_seed(seed)
            (gradient,) = torch.autograd.grad(errors(model, 4, kept)[i], list(model.parameters()))
            parts.append(gradient)
        with noise.micro_batch(4, scale=1 / 3):
            (errors(model, 4, torch.Generator().manual_seed(seed)).mean() / 3).backward()
    noise.step()
    given = noise.estimate()
    expected = by_definition([torch.cat(parts[i : i + 4]) for i in (0, 4, 8)])
    assert (given.gradient_norm_squared, given.covariance_trace) == pytest.approx(expected)
    assert given.noise_scale == pytest.approx(expected[1] / expected[0])


def test_a_common_factor_changes_the_terms_and_not_their_ratio() -> None:
    plain = measured((2, 2), (1.0, 1.0), steps=3).estimate()
    model, generator = regression(), torch.Generator().manual_seed(0)
    noise = batchscale.NoiseScale(model)
    for _ in range(3):
        for _ in range(2):
            with noise.micro_batch(2):
                (errors(model, 2, generator).mean() / 2).backward()
        noise.step()
        model.zero_grad()
    assert noise.estimate().noise_scale == pytest.approx(plain.noise_scale)
    assert noise.estimate().covariance_trace == pytest.approx(plain.covariance_trace / 4)


def test_the_ratio_is_of_means_and_of_the_last_steps() -> None:
    model = regression()
    noise = batchscale.NoiseScale(model, window=2, tokens_per_example=10)
    noise._rows.extend([[(9.0, 9.0)], [(1.0, 2.0)], [(3.0, 10.0)]])
    assert noise.estimate().noise_scale == 3
    assert noise.estimate(unit="tokens").noise_scale == 30
    assert noise.estimate(unit="tokens").covariance_trace == 6


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_narrow_gradients_are_summed_in_float64(kind: torch.dtype) -> None:
    model = nn.Linear(300, 300, bias=False, dtype=kind)
    noise = batchscale.NoiseScale(model)
    for sign in (1, 2):
        with noise.micro_batch(1):
            model(torch.full((1, 300), 4.0 * sign, dtype=kind)).sum().backward()
    noise.step()  # |g|² are 90,000 times 16 and 64, of which float16 holds neither
    row = noise.estimate()
    assert row.covariance_trace == pytest.approx(90_000 * (40 - 36) * 2)
    assert row.gradient_norm_squared == pytest.approx(90_000 * (36 - 4))


def test_parameters_without_a_gradient_and_sparse_ones() -> None:
    table = nn.Embedding(5, 2, sparse=True, dtype=torch.float64)
    model = nn.ModuleDict({"table": table, "unused": nn.Linear(2, 2)})
    noise = batchscale.NoiseScale(model)
    for row in (0, 1):
        with noise.micro_batch(1):
            table(torch.tensor([row, row])).sum().backward()
    noise.step()
    assert noise.estimate().covariance_trace == pytest.approx(8)  # |g|² is 8, its mean half


def test_a_step_that_is_not_finite_is_left_out() -> None:
    model, generator = regression(), torch.Generator().manual_seed(0)
    noise = batchscale.NoiseScale(model)
    for factor in (1.0, math.inf, 1.0):
        for _ in range(2):
            with noise.micro_batch(2):
                (factor * errors(model, 2, generator).mean()).backward()
        noise.step()
        model.zero_grad(set_to_none=False)
        model.weight.grad.zero_()
    assert noise.estimate().steps == 2
    assert noise.estimate().notes[-1] == "left out, since a gradient was not finite: 1"


def test_the_scale_of_a_grad_scaler_changes_nothing() -> None:
    given = []
    for enabled in (False, True):
        model, generator = regression(), torch.Generator().manual_seed(0)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=1, enabled=enabled)
        noise = batchscale.NoiseScale(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            for _ in range(2):
                with noise.micro_batch(2, scale=scaler.get_scale()):
                    scaler.scale(errors(model, 2, generator).mean()).backward()
            noise.step()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        given.append([row[0] for row in noise._rows])
    assert torch.allclose(torch.tensor(given[0]), torch.tensor(given[1]))


def test_adams_geometry() -> None:
    """The same as a plain noise scale of gradients divided by what Adam divides by."""
    model, generator = regression(), torch.Generator().manual_seed(0)
    adam = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.99), eps=1e-3)
    noise = batchscale.NoiseScale(model, optimizer=adam)
    moment = torch.zeros_like(DISTANCE)
    rows = []
    for step in range(4):
        parts = []
        divisor = (moment / (1 - 0.99**step)).sqrt() + 1e-3 if step else 1.0
        for _ in range(2):
            before = 0 if model.weight.grad is None else model.weight.grad.clone()
            with noise.micro_batch(3, scale=0.5):
                (errors(model, 3, generator).mean() / 2).backward()
            parts.append(2 * (model.weight.grad - before) / divisor)
        noise.step()
        if step:
            small = sum(float(part.square().sum()) for part in parts) / 2
            big = float(((parts[0] + parts[1]) / 2).square().sum())
            rows.append((1, (6 * big - 3 * small) / 3, (small - big) * 6))
        moment = 0.99 * moment + 0.01 * model.weight.grad[0].square()
        adam.step()
        adam.zero_grad()
    expected = estimate(rows)
    given = noise.estimate(preconditioned=True)
    assert given.steps == 3  # before its first update Adam has no second moments
    assert given.noise_scale == pytest.approx(expected.noise_scale)
    assert given.gradient_norm_squared == pytest.approx(expected.gradient_norm_squared)
    assert noise.estimate().steps == 4


def backward(model: nn.Module, examples: int = 2) -> None:
    errors(model, examples, torch.Generator().manual_seed(0)).mean().backward()


def twice_in_a_part(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    with noise.micro_batch(2):
        backward(model)
        backward(model)


def outside(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    with noise.micro_batch(2):
        backward(model)
    backward(model)
    noise.step()


def left_from_before(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    backward(model)
    with noise.micro_batch(2):
        backward(model)


def without_step(noise: batchscale.NoiseScale, model: nn.Module, to_none: bool = True) -> None:
    for _ in range(2):
        with noise.micro_batch(2):
            backward(model)
        model.zero_grad(to_none)


def changed(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    for _ in range(2):
        with noise.micro_batch(2):
            backward(model)
    for parameter in model.parameters():
        parameter.grad = 20 * DISTANCE[None]
    noise.step()


def single(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    with noise.micro_batch(2):
        backward(model)
    noise.step()


def nothing(noise: batchscale.NoiseScale, model: nn.Module) -> None:
    with noise.micro_batch(2):
        model(torch.zeros(2, DIMENSION, dtype=torch.float64))


def zeroed(noise: batchscale.NoiseScale, model: nn.Module, to_none: bool = True) -> None:
    for _ in range(2):
        with noise.micro_batch(2):
            backward(model)
    model.zero_grad(to_none)
    noise.step()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (twice_in_a_part, "micro_batch: a second gradient of weight"),
        (outside, "step: a backward pass outside of micro_batch"),
        (left_from_before, r"micro_batch: call step\(\), then zero_grad\(\)"),
        (without_step, r"micro_batch: call step\(\), then zero_grad\(\)"),
        (partial(without_step, to_none=False), r"micro_batch: call step\(\), then zero_grad\(\)"),
        (changed, "step: the gradient has more in it than its micro-batches"),
        (single, "step: a single small batch"),
        (nothing, "micro_batch: no backward pass in it"),
        (zeroed, "step: no gradient; call it before zero_grad"),
        (partial(zeroed, to_none=False), "step: the gradient was zeroed; call it before zero_grad"),
        (lambda noise, _: noise.step(), "step: no micro_batch before it"),
        (lambda noise, _: noise.micro_batch(0).__enter__(), "micro_batch: examples and scale"),
        (lambda noise, _: noise.estimate(), "estimate: no step was measured"),
        (lambda noise, _: noise.estimate(unit="tokens"), "unit: examples, or tokens by"),
    ],
)
def test_wrong_use_is_refused(use: Any, message: str) -> None:
    model = regression()
    with pytest.raises(ValueError, match=message):
        use(batchscale.NoiseScale(model), model)


def test_micro_batches_without_a_gradient_are_measured() -> None:
    """Such as those whose targets are all masked: nobody has zeroed it."""
    model, generator = regression(), torch.Generator().manual_seed(0)
    noise = batchscale.NoiseScale(model)
    for factor in (0.0, 0.0, 1.0):
        with noise.micro_batch(2):
            (factor * errors(model, 2, generator).mean()).backward()
    noise.step()
    assert noise.estimate().covariance_trace > 0


def test_a_step_with_a_micro_batch_that_raised_is_refused() -> None:
    model = regression()
    noise = batchscale.NoiseScale(model)
    with noise.micro_batch(2):
        backward(model)
    with pytest.raises(RuntimeError), noise.micro_batch(2):
        errors(model, 2, torch.Generator()).backward()  # of a vector
    with pytest.raises(ValueError, match="step: one of its micro-batches has raised"):
        noise.step()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("fails", [0, 1])
@pytest.mark.parametrize("norm", ["euclidean", "sign"])
def test_a_batch_that_raised_is_left_out_after_zero_grad(
    norm: str, fails: int, to_none: bool
) -> None:
    """As of want of memory, in the first or second micro-batch."""
    rows = []
    for failing in (False, True):
        model, generator = regression(), torch.Generator().manual_seed(0)
        noise = batchscale.NoiseScale(model, norm=norm)
        for step in range(3):
            if failing and step == 1:
                for i in range(fails + 1):
                    loss = errors(model, 2, torch.Generator().manual_seed(step)).mean()
                    with contextlib.suppress(MemoryError), noise.micro_batch(2):
                        loss.backward()
                        if i == fails:
                            raise MemoryError
                model.zero_grad(set_to_none=to_none)
            for _ in range(2):
                with noise.micro_batch(2):
                    errors(model, 2, generator).mean().backward()
            noise.step()
            model.zero_grad(set_to_none=to_none)
        rows.append([*noise._rows])
    assert rows[0] == rows[1]


def test_a_step_after_a_refused_one_is_measured() -> None:
    model = regression()
    noise = batchscale.NoiseScale(model)
    with pytest.raises(ValueError, match="outside"):
        outside(noise, model)
    model.zero_grad()
    for _ in range(2):
        with noise.micro_batch(2):
            backward(model)
    noise.step()
    assert noise.estimate().steps == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: {"optimizer": torch.optim.SGD(m.parameters())}, "optimizer: an Adam-like one"),
        (
            lambda m: {"optimizer": torch.optim.Adam(m.parameters()), "per_example": True},
            "optimizer: an Adam-like one, and without per_example",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(make: Any, message: str) -> None:
    model = regression()
    with pytest.raises(ValueError, match=message):
        batchscale.NoiseScale(model, **make(model))
    with pytest.raises(ValueError, match="no parameters to train"):
        batchscale.NoiseScale(nn.ReLU())


def test_copies_and_a_removed_one() -> None:
    model = regression()
    noise = batchscale.NoiseScale(model)
    average = copy.deepcopy(model)
    noise.remove()
    with pytest.raises(ValueError, match="no backward pass"), noise.micro_batch(2):
        backward(average)
