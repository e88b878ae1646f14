"""Layers on sequences in a stack: the numbers of torch's own, and no change for other models."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F

from experiments.engines import stack
from experiments.engines.stacked import StackedEngine
from experiments.engines.tracing import columns
from experiments.engines.tracing.sequence_functions import SequenceFunctions
from experiments.engines.tracing.simplify import simplified
from experiments.plan import WorkloadRef
from experiments.training.study_context import StudyContext
from tests.problems import study, trials

MODELS, EXAMPLES, LENGTH, WIDTH = 3, 2, 5, 4


def _made(*shape: int) -> Tensor:
    return torch.randn(MODELS, *shape, dtype=torch.float64)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


def _unbiased(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight)


def _norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (WIDTH,), weight, bias)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=0.3)


def _tokens(x: Tensor, weight: Tensor) -> Tensor:
    logits = F.linear(x, weight)
    target = (torch.arange(EXAMPLES * LENGTH) * 5) % 7
    target = torch.where(target == 3, -100, target)
    return F.cross_entropy(logits.flatten(0, 1), target, reduction="none")


HEADS = (EXAMPLES, 2, LENGTH, WIDTH)
CASES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (_linear, [(EXAMPLES, LENGTH, WIDTH), (7, WIDTH), (7,)]),
    "linear without bias": (_unbiased, [(EXAMPLES, LENGTH, WIDTH), (7, WIDTH)]),
    "layer norm": (_norm, [(EXAMPLES, LENGTH, WIDTH), (WIDTH,), (WIDTH,)]),
    "causal attention": (_causal, [HEADS, HEADS, HEADS]),
    "scaled attention": (_scaled, [HEADS, HEADS, HEADS]),
    "cross entropy of tokens": (_tokens, [(EXAMPLES, LENGTH, WIDTH), (7, WIDTH)]),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_torch(case: str) -> None:
    torch.manual_seed(0)
    function, shapes = CASES[case]
    inputs = [_made(*shape) for shape in shapes]

    def of_model(*given: Tensor) -> Any:
        made = function(*given)
        return (made * torch.arange(made.numel()).view(made.shape)).sum(), made

    def in_stack(*given: Tensor) -> Any:
        with SequenceFunctions():
            return of_model(*given)

    every = tuple(range(len(inputs)))
    gradients, values = vmap(grad(in_stack, argnums=every, has_aux=True))(*inputs)
    for row in range(MODELS):
        given = [x[row].clone().requires_grad_() for x in inputs]
        total, made = of_model(*given)
        total.backward()
        assert torch.allclose(values[row], made, rtol=1e-12, atol=1e-12)
        for ours, x in zip(gradients, given, strict=True):
            assert x.grad is not None
            assert torch.allclose(ours[row], x.grad, rtol=1e-11, atol=1e-11)


def _engine(workload: WorkloadRef | str, target: str) -> StackedEngine:
    of = study(workload=workload, batch_size=6, target=target, optimizer="adamw")
    return StackedEngine(StudyContext.load(of), trials(of, 3))


@pytest.mark.slow
def test_a_layer_calls_attention_once_for_all_models(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations: Counter[str] = Counter()

    def counted(traced: torch.fx.GraphModule) -> Callable[..., Any]:
        function = simplified(traced)
        operations.update(str(node.target) for node in traced.graph.nodes)
        return function

    monkeypatch.setattr(stack, "simplified", counted)
    stack._traces.clear()
    (tmp_path / "text.txt").write_text("sphinx of black quartz judge my vow\n" * 40)
    fields = {"text": "file:text.txt", "layers": 2, "width": 8, "heads": 2, "context": 6}
    ref = WorkloadRef(spec="lm-transformer", fields=fields, base=str(tmp_path))
    _engine(ref, "validation_cross_entropy < 1").advance(1)
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert operations[f"{name}.default"] == operations[f"{name}_backward.default"] == 2
    # Four products a layer and the output layer, each with two more for the gradient; none of
    # them for anything else.
    products = ("aten.bmm.default", "aten.baddbmm.default", str(columns.product))
    assert sum(operations[product] for product in products) == 3 * 9


@pytest.mark.usefixtures("one_thread")
def test_other_models_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = []
    for functions in (SequenceFunctions, contextlib.nullcontext):
        monkeypatch.setattr(stack, "SequenceFunctions", functions)
        stack._traces.clear()
        engine = _engine("digits-mlp", "validation_error < 0.01")
        engine.advance(20)
        bits.append((engine.stack.weights.numpy().tobytes(), engine.evaluate("validation")))
    stack._traces.clear()
    assert bits[0] == bits[1]
