"""Stacked forms of the packaged optimizers against the library's class, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments import optimizers
from experiments.engines.stack import Stack, offsets_of
from experiments.engines.updates import FusedUpdate, _vectors
from experiments.optimizers import stacked_update
from experiments.optimizers.base import RATE_FACTOR, Optimizer
from experiments.optimizers.groups import Rates
from experiments.optimizers.schedule_free import evaluated_weights

SHAPES = {"conv.weight": (3, 2, 3, 3), "in.weight": (7, 5), "in.bias": (7,), "gain": (1,)}
RANGES = {
    "learning_rate": (1e-3, 0.3),
    "momentum": (0.3, 0.97),
    "beta1": (0.3, 0.97),
    "beta2": (0.5, 0.999),
    "epsilon": (1e-9, 1e-4),
    "weight_decay": (1e-3, 0.5),
    "momentum_decay": (1e-3, 0.1),
    "trust_coefficient": (1e-3, 1.0),
}
STACKED = [
    name
    for name in optimizers.names()
    if getattr(optimizers.get(name), "form", None)  # muon's is tested by itself
]
BY_ROW = [
    name
    for name in STACKED
    if getattr(optimizers.get(name).form, "update_row", None)  # type: ignore[attr-defined]
    not in (None, stacked_update.ElementwiseUpdate.update_row)
]
"""Those with a form for long rows; here for rows of any length."""
CASES = [*STACKED, *(f"{name} by rows" for name in BY_ROW)]
MODELS, STEPS = 3, 25


def _of_case(case: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Optimizer, list[int]]:
    """The optimizer, and a list with an entry for each row that is updated by itself."""
    name, _, by_rows = case.partition(" ")
    optimizer, rows = optimizers.get(name), list[int]()
    if by_rows:
        form = optimizer.form  # type: ignore[attr-defined]
        update_row = form.update_row
        monkeypatch.setattr(stacked_update, "ROW", 1)
        monkeypatch.setattr(form, "update_row", lambda *a: rows.append(1) or update_row(*a))
    return optimizer, rows


def _draws(optimizer: Optimizer, rows: int, decay: bool = True) -> list[dict[str, float]]:
    """Other values in every row; an argument without a range is an error."""
    draw = np.random.default_rng(3)
    names = sorted(optimizer.arguments)
    drawn = [
        {n: float(np.exp(draw.uniform(*np.log(RANGES[n])))) for n in names} for _ in range(rows)
    ]
    return drawn if decay else [{**values, "weight_decay": 0.0} for values in drawn]


def _stack(rows: int, dtype: torch.dtype = torch.float64) -> Stack:
    """Random weights; the biases begin at 0, as usual."""
    shapes = [torch.Size(shape) for shape in SHAPES.values()]
    stack = Stack(
        names=list(SHAPES),
        shapes=shapes,
        trainable=list(SHAPES),
        weights=torch.zeros(rows, offsets_of(shapes)[-1], dtype=dtype),
        losses=torch.zeros(rows),
    )
    draw = torch.Generator().manual_seed(1)
    for name, view in stack.views.items():
        if name != "in.bias":
            view.copy_(torch.randn(view.shape, generator=draw, dtype=dtype))
    return stack


def _gradients(stack: Stack, step: int) -> None:
    """Random ones, of very different sizes; 0 at the padding."""
    draw = torch.Generator().manual_seed(100 + step)
    for view in stack.gradient_views.values():
        sizes = torch.rand(view.shape, generator=draw, dtype=view.dtype) * 8 - 6
        view.copy_(torch.randn(view.shape, generator=draw, dtype=view.dtype) * 10**sizes)


def _factor(step: int) -> float:
    """A schedule with warmup and a decay to 0."""
    return min((step + 1) / 4, 0.5 + 0.5 * math.cos(math.pi * step / (STEPS - 1)))


def _fused(
    optimizer: Optimizer, stack: Stack, values: Any, options: Mapping[str, Mapping[str, float]]
) -> FusedUpdate:
    vectors = _vectors(stack, options)
    form = optimizer.stacked(values, stack.weights, vectors, stack.slices)
    assert form is not None
    factor = vectors.get(RATE_FACTOR)
    return FusedUpdate(form, stack, None if factor is None else factor.nan_to_num(nan=1.0))


def _rates(values: list[dict[str, float]], step: int) -> Tensor:
    # In float64 from the beginning: rates in float32 would be the error that is compared.
    rates = [[v["learning_rate"] * _factor(step)] for v in values]
    return torch.tensor(rates, dtype=torch.float64)


def _options(optimizer: Optimizer) -> dict[str, dict[str, float]]:
    """No decay of vectors, and other values of everything for a matrix."""
    changed = {"momentum": 0.6, "beta1": 0.4, "beta2": 0.8, "epsilon": 1e-3, "weight_decay": 0.2}
    changed |= {"momentum_decay": 0.05, "trust_coefficient": 0.5}
    taken = {name: value for name, value in changed.items() if name in optimizer.arguments}
    vector = {"weight_decay": 0.0}
    return {"conv.weight": {**taken, RATE_FACTOR: 0.5}, "in.bias": vector, "gain": vector}


@pytest.mark.parametrize("options", [False, True])
@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_librarys_class_takes_the_same_steps(
    case: str, decay: bool, options: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row by itself where it is long; and the padding between parameters stays 0."""
    optimizer, rows = _of_case(case, monkeypatch)
    values = _draws(optimizer, MODELS, decay)
    # No decay of vectors is what is usual.
    plain = {"in.bias": {"weight_decay": 0.0}, "gain": {"weight_decay": 0.0}} if decay else {}
    stack, of_parameters = _stack(MODELS), _options(optimizer) if options else plain
    update = _fused(optimizer, stack, values, of_parameters)
    models, start = [], stack.weights.clone()
    for row in range(MODELS):
        named = {n: torch.nn.Parameter(v[row].clone()) for n, v in stack.views.items()}
        made = optimizer.module(named.items(), values[row], of_parameters)
        assert type(made).__module__.partition(".")[0] in ("torch", "pytorch_optimizer")
        models.append((named, made, Rates(made, optimizer.name)))
    for step in range(STEPS):
        _gradients(stack, step)
        given = {n: v.clone() for n, v in stack.gradient_views.items()}
        update.step(_rates(values, step))
        for row, (named, made, rates) in enumerate(models):
            rates.scale(_factor(step))
            for n, parameter in named.items():
                parameter.grad = given[n][row].clone()
            made.step()
    measured = update.evaluated(torch.arange(MODELS))
    views = stack.views if measured is None else stack.views_of(measured)
    for row, (named, made, _) in enumerate(models):
        for n, parameter in named.items():
            _assert_equal(stack.views[n][row], parameter.data)
        with evaluated_weights(made):
            assert (measured is None) == torch.equal(views["gain"][row], stack.views["gain"][row])
            for n, parameter in named.items():
                _assert_equal(views[n][row], parameter.data)
    moved = (stack.weights - start).abs().amax(dim=1)
    assert bool((moved > 1e-4).all())
    for view in stack.views.values():
        view.zero_()
    assert not stack.weights.any()
    if case.endswith("by rows") and not options:
        # Decay that goes into the gradient differs between the numbers of a row: in blocks.
        assert len(rows) == (0 if optimizer.name == "adam" and decay else MODELS * STEPS)


def _assert_equal(ours: Tensor, theirs: Tensor) -> None:
    # Numbers near 0 are differences of larger ones: an error is relative to the parameter's size.
    size = float(theirs.abs().max())
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12 * size)


def test_lamb_is_the_papers_without_the_librarys_bound_and_correction() -> None:
    """One step of Algorithm 2 of You et al. 2020, written out; a matrix with a norm above 10."""
    weight = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).double()
    gradient = torch.randn(40, 50, generator=torch.Generator().manual_seed(1)).double()
    assert float(weight.norm()) > 10
    parameter = torch.nn.Parameter(weight.clone())
    values = {"learning_rate": 0.1, "weight_decay": 0.3, "epsilon": 0.0}
    made = optimizers.get("lamb").module([("weight", parameter)], values)
    parameter.grad = gradient.clone()
    made.step()
    # Without epsilon, both bias corrections together only scale the first direction.
    direction = 0.1 * gradient / (0.001 * gradient**2).sqrt() + 0.3 * weight
    expected = weight - 0.1 * direction * weight.norm() / direction.norm()
    torch.testing.assert_close(parameter.data, expected, rtol=1e-12, atol=0)


def test_vectors_keep_the_size_of_their_update_in_lars_and_lamb() -> None:
    for name, size in (("lars", 0.5), ("lamb", 0.1 / 0.001**0.5)):
        parameter = torch.nn.Parameter(torch.full((3,), 7.0).double())
        values = {"learning_rate": 0.25, "epsilon": 0.0, "trust_coefficient": 1e-3}
        optimizer = optimizers.get(name)
        made = optimizer.module([("bias", parameter)], optimizer.arguments_in(values))
        parameter.grad = torch.full((3,), 0.5).double()
        made.step()
        torch.testing.assert_close(7 - parameter.data, torch.full((3,), 0.25 * size).double())


@pytest.mark.parametrize("name", STACKED)
def test_blocks_of_columns_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An elementwise update in blocks of 16 columns is that of all columns at once."""
    optimizer, ends = optimizers.get(name), []
    for block in (1, stacked_update._BLOCK):
        monkeypatch.setattr(stacked_update, "_BLOCK", block)
        values, stack = _draws(optimizer, 3), _stack(3, torch.float32)
        update = _fused(optimizer, stack, values, _options(optimizer))
        for step in range(5):
            _gradients(stack, step)
            update.step(_rates(values, step))
        ends.append((stack.weights, update.form.state))
    (weights, state), (others, theirs) = ends
    assert torch.equal(weights, others)
    assert all(torch.equal(value, theirs[n]) for n, value in state.items())
