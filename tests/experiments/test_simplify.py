"""A traced graph and its simplified form: the same numbers from fewer operations."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from experiments.engines import stack
from experiments.engines.tracing import columns, simplify
from experiments.engines.tracing.memory import owners, value_of
from experiments.plan import WorkloadRef
from tests.problems import engine, study, trials

CASES: dict[str, dict[str, Any]] = {
    "digits-mlp": {"workload": "digits-mlp"},
    "digits-mlp, a batch that is no multiple of 16": {"workload": "digits-mlp", "batch_size": 50},
    "a Transformer": {
        "workload": WorkloadRef(
            spec="lm-transformer",
            fields={"text": "stdlib", "context": 16, "layers": 1, "width": 16, "heads": 2},
        ),
        "batch_size": 4,
        "target": "validation_cross_entropy < 1",
    },
}
QUICK = ("digits-mlp",)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("case", "by_columns"),
    [
        pytest.param(case, by_columns, marks=[] if case in QUICK else pytest.mark.slow)
        for case in CASES
        for by_columns in (True, False)
    ],
)
def test_a_stack_trains_as_without(
    case: str, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 20 steps, weights and metrics are those of the graph as it was traced: to the last bit,
    but for what is computed by columns."""
    if not by_columns:
        monkeypatch.setattr(simplify, "compute_by_columns", lambda *_: None)
    # Adam makes whole steps of gradients that are rounded to 0 or not.
    of = study(optimizer="momentum" if by_columns else "adam", **CASES[case])
    some = trials(of, 3)
    weights, metrics, operations = [], [], []
    for change in (simplify.simplified, lambda traced: traced.forward):
        counted: list[int] = []

        def changed(traced: fx.GraphModule, change: Any = change, counted: Any = counted) -> Any:
            function = change(traced)
            counted.append(sum(node.op == "call_function" for node in traced.graph.nodes))
            return function

        monkeypatch.setattr(stack, "simplified", changed)
        stack._traces.clear()
        stacked = engine("stacked", of, some, steps=20)
        metrics.append(stacked.evaluate("validation"))
        weights.append([stacked.weights(row) for row in range(len(some))])
        operations.append(sum(counted))
    stack._traces.clear()
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if by_columns else {"rtol": 0, "atol": 0}
    for ours, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)
    for of_ours, of_theirs in zip(*metrics, strict=True):
        assert of_ours == pytest.approx(of_theirs, rel=tolerance["rtol"], abs=0)
    assert operations[0] < 0.8 * operations[1]


@settings(deadline=None, max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(16, 70), st.integers(1, 16)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 9),
)
def test_softmax_by_columns_is_that_by_rows(
    shape: tuple[int, int, int], dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, gradient = (torch.randn(shape, dtype=dtype, generator=generator) for _ in range(2))
    by_rows = torch.log_softmax(4 * x, -1)
    ours = columns.log_softmax(4 * x)
    torch.testing.assert_close(ours, by_rows)
    back = torch.ops.aten._log_softmax_backward_data(gradient, by_rows, 2, dtype)
    ours_back = columns.log_softmax_backward(gradient, by_rows)
    torch.testing.assert_close(ours_back, back)
    assert ours.mT.is_contiguous()
    assert ours_back.mT.is_contiguous()


def graph_of(function: Callable[..., Any], *given: Tensor) -> fx.GraphModule:
    traced: fx.GraphModule = make_fx(function)(*given)
    return traced


def test_equal_operations_constants_and_views_of_the_same_shape_are_gone() -> None:
    def function(x: Tensor) -> Tensor:
        same = x.expand(4, 4).view(4, 4).transpose(0, 1).transpose(0, 1)
        ones = torch.ones_like(x) / torch.tensor(4.0)
        return (same * 2 + x * 2) * ones

    x = torch.randn(4, 4)
    traced = graph_of(function, x)
    expected = traced(x)
    simplify.simplify(traced)
    torch.testing.assert_close(traced(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(traced(2 * x), function(2 * x), rtol=0, atol=0)
    compiled = simplify.compiled(traced)
    torch.testing.assert_close(compiled(2 * x), function(2 * x), rtol=0, atol=0)
    assert sum(node.op == "call_function" for node in traced.graph.nodes) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.maximum(torch.rand_like(x), torch.rand_like(x)),
        lambda x: torch.maximum((x + 0).add_(1), x + 0),
    ],
    ids=["random numbers", "changed in place"],
)
def test_a_graph_that_is_not_pure_stays(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3)
    traced = graph_of(function, x)
    before = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    simplify.simplify(traced)
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == before


def _reads_twice(x: Tensor, y: Tensor) -> list[Tensor]:
    first = x @ y
    return [(first + y) * first]


def _reads_a_view_later(x: Tensor, y: Tensor) -> list[Tensor]:
    first = x @ y
    view = first.T
    return [(first + 1) @ view]


def _reads_its_own_transpose(x: Tensor, y: Tensor) -> list[Tensor]:
    first = x @ y
    return [first + first.T]


def _returns_what_it_reads(x: Tensor, y: Tensor) -> list[Tensor]:
    first = x @ y
    return [first, first + y, (first * y).neg()]


def _grows(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x.sum(0, keepdim=True) + y, (x > 0) * y, x.neg() + y]


def _activations(x: Tensor, y: Tensor) -> list[Tensor]:
    x.requires_grad_(True)
    inner = torch.relu(torch.tanh(torch.sigmoid(x @ y)) + y)
    outer = torch.nn.functional.gelu(inner @ y).exp().sum()
    return [torch.autograd.grad(outer, x)[0], outer.detach()]


ACTIVATIONS = [
    *("sigmoid_", "relu_", "exp_"),  # the gradient needs what was before the others
    *("gelu_backward", "threshold_backward", "tanh_backward", "sigmoid_backward"),
]


@pytest.mark.parametrize(
    ("function", "overwritten"),
    [
        (_reads_twice, ["mul_"]),  # of the sum, which nothing else reads
        (_reads_a_view_later, []),
        (_reads_its_own_transpose, []),
        (_returns_what_it_reads, ["neg_"]),
        (_grows, ["add_"]),
        (_activations, ACTIVATIONS),
    ],
)
def test_an_operation_overwrites_only_what_nothing_reads_any_more(
    function: Callable[..., list[Tensor]], overwritten: list[str]
) -> None:
    x, y = torch.randn(2, 5, 5).unbind()
    traced = graph_of(function, x.clone(), y.clone())
    expected, given = function(x.clone(), y.clone()), (x.clone(), y.clone())
    function_of_traced = simplify.simplified(traced)
    for _ in range(2):
        for made, one in zip(function_of_traced(*given), expected, strict=True):
            assert torch.equal(made, one)
    assert torch.equal(torch.stack(given), torch.stack((x, y)))
    names = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
    forms = [name.split(".")[1] for name in names if "_." in name or "grad_input" in name]
    assert sorted(forms) == sorted(overwritten)


def test_what_is_returned_shares_no_memory_with_an_input_or_another_call() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [x.expand(3, 3), torch.ones_like(x), (x * 2).T.T, x * 2, torch.ones_like(x)]

    x = torch.randn(3, 3)
    traced = graph_of(function, x)
    views = [len({t.data_ptr()} & {x.data_ptr()}) for t in traced(x)]
    simplify.simplify(traced)
    first, second = traced(x), traced(x)
    assert [len({t.data_ptr()} & {x.data_ptr()}) for t in first] == views
    for one, other in zip(first[1:], second[1:], strict=True):
        assert one.data_ptr() != other.data_ptr()
    assert len({t.data_ptr() for t in first[1:]}) == 4


def test_a_view_back_to_a_result_is_returned_as_the_result() -> None:
    def function(x: Tensor) -> list[Tensor]:
        product = x @ x
        return [product.T.T, (x + 1).T, x.T.T]

    x = torch.randn(3, 3)
    traced = graph_of(function, x)
    expected = traced(x)
    simplify.simplify(traced)
    found = simplify.compiled(traced)(x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert found[2] is not x  # who writes into a result must not change what was given
    views = [node for node in traced.graph.nodes if node.target in simplify.VIEWS]
    assert len(views) == 3  # of the sum one, of the input, which is not ours, both


def test_a_graph_without_operations_is_a_function_too() -> None:
    x = torch.randn(3)
    assert simplify.simplified(graph_of(lambda t: (t, [t]), x))(x) == (x, [x])


def test_a_compiled_graph_frees_what_nothing_uses_any_more() -> None:
    freed: list[bool] = []

    def observed(x: Tensor, earlier: weakref.ref[Tensor]) -> Tensor:
        freed.append(earlier() is None)
        return x

    traced = graph_of(lambda t: ((t * 2) * 3) * 4, torch.randn(3))
    first, second, third = (n for n in traced.graph.nodes if n.op == "call_function")
    with traced.graph.inserting_after(first):
        kept = traced.graph.call_function(weakref.ref, (first,))
    third.target, third.args = observed, (second, kept)
    simplify.compiled(traced)(torch.randn(3))
    assert freed == [True]


def _outputs(x: Tensor, weight: Tensor) -> Tensor:
    return torch.log_softmax(torch.bmm(x, weight.mT), -1)


def _twice_the_same(x: Tensor, weight: Tensor) -> Tensor:
    logarithms = torch.log_softmax(x @ weight.mT, -1)
    return torch.ops.aten._log_softmax_backward_data(logarithms, logarithms, 2, x.dtype)


def _changed_in_place(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x, weight.mT).add_(1)


def test_other_numbers_of_classes_or_examples_and_what_is_changed_in_place_are_left_to_torch() -> (
    None
):
    product, softmax = torch.ops.aten.bmm.default, torch.ops.aten._log_softmax.default
    for function, rows, classes, left in (
        (_outputs, 64, 100, {product, softmax}),
        (_outputs, 8, 10, {product, softmax}),
        (_outputs, 64, 16, {product}),
        (_outputs, 64, 10, set()),
        (_twice_the_same, 64, 10, set()),
        (_changed_in_place, 64, 10, {product}),
    ):
        given = torch.randn(2, rows, 7), torch.randn(2, classes, 7)
        traced = graph_of(function, *given)
        simplify.simplify(traced)
        targets = {node.target for node in traced.graph.nodes if node.op == "call_function"}
        assert targets & {product, softmax} == left
        torch.testing.assert_close(simplify.compiled(traced)(*given), function(*given))


def _through_views(x: Tensor, weight: Tensor) -> list[Tensor]:
    outputs = torch.bmm(x, weight.mT) + weight[:, None, :, 0]
    doubled = outputs * 2
    return [
        outputs.view(len(x), -1).cumsum(1),
        outputs.unsqueeze(1).expand(-1, 2, -1, -1).reshape(2 * len(x), -1),
        doubled.mT.reshape(-1),
        doubled.sum(1),
        doubled.argmax(2),
        torch.stack([outputs, doubled]),
        doubled,
        torch.bmm(doubled.mT, x),
        doubled[:, 3:5] + outputs[:, 3:5].exp(),
        outputs + torch.rand_like(outputs),
    ]


@pytest.mark.parametrize("examples", [32, 37])
def test_what_follows_a_product_by_columns_is_what_it_was(examples: int) -> None:
    """Through views, copies, sums and further products; results are laid out as they were."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.rand(3, n, 11, generator=generator) / 4 for n in (examples, 10))
    traced = graph_of(_through_views, x, weight)
    torch.manual_seed(0)
    expected = traced(x, weight)
    simplify.simplify(traced)
    assert columns.product in {node.target for node in traced.graph.nodes}
    torch.manual_seed(0)
    results = simplify.compiled(traced)(x, weight)
    for result, before in zip(results, expected, strict=True):
        torch.testing.assert_close(result, before)
        assert result.stride() == before.stride()
    _check_layouts(traced, x, weight)


def _check_layouts(traced: fx.GraphModule, *given: Tensor) -> None:
    """Every tensor of a graph, but for its inputs, lies as the graph says."""
    owner = owners(traced.graph)

    class Checked(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result, value = super().run_node(n), value_of(n)
            if owner[n].op == "call_function" and value is not None:
                assert columns._layout(result) == columns._layout(value), n.format_node()
            return result

    Checked(traced).run(*given)
