"""Tensors ``(…, rows, columns)`` of few columns, such as a model's outputs for a few classes, laid
out *by columns* in a graph: the numbers of a column are neighbours in memory.

torch's kernels fill a vector register with numbers of the last dimension in memory. Where that has
fewer than a register holds, a matrix product takes twice as long as with the result transposed, and
a softmax five to ten times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.fx.node import map_arg

from experiments.engines.tracing.memory import value_of

aten = torch.ops.aten

_ROWS = 16
"""Rows that fill the vector registers of every CPU."""
_MOST_COLUMNS = 16


def compute_by_columns(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """Products and softmaxes of few columns give their results by columns, and so does what follows
    from them, as far as it takes any layout: what does not gets a copy, laid out as it was.

    Args:
        changed: tensors that the graph writes into; they stay as they are.
    """
    moved: set[fx.Node] = set()
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        before = value_of(node)
        if node not in changed and before is not None and _gains(node, before):
            node.args = tuple(each for each in node.args if isinstance(each, fx.Node))
            node.target = _BY_COLUMNS[node.target]
        else:
            inputs = moved & set(node.all_input_nodes)
            if not inputs:
                continue
            if node in changed or before is None or not _takes_any_layout(node):
                for each in inputs:
                    if each not in copies:
                        copies[each] = _as_before(graph, each)
                    node.replace_input_with(each, copies[each])
                continue
        node.meta["before"], node.meta["val"] = before, _computed(node)
        if _layout(node.meta["val"]) != _layout(before):
            moved.add(node)


def _gains(node: fx.Node, value: Tensor) -> bool:
    """Whether a node's result, ``value``, is computed faster by columns, and may be."""
    sources = [value_of(each) for each in node.args if isinstance(each, fx.Node)]
    if node.target not in _BY_COLUMNS or value.dim() < 2 or value.device.type != "cpu":
        return False
    rows, columns = value.shape[-2:]
    # In float64, which is for comparisons, numbers stay those of a model alone.
    plain = all(each is not None and each.dtype == torch.float32 for each in (value, *sources))
    if node.target is aten.bmm.default:
        few = 1 < columns < _MOST_COLUMNS
    else:
        few = columns <= _MOST_COLUMNS and node.args[len(sources)] in (-1, value.dim() - 1)
    return plain and few and rows >= _ROWS


def _takes_any_layout(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:  # drawn in the order of memory
        return False
    return node.target in _ANY_LAYOUT or torch.Tag.pointwise in tags


def _computed(node: fx.Node) -> Any:
    """What a node's tensor is like, from what its arguments are like now."""
    with FakeTensorMode():

        def like(argument: fx.Node) -> Tensor | None:
            value = value_of(argument)
            return None if value is None else _empty(value, value.stride())

        args, kwargs = map_arg((node.args, dict(node.kwargs)), like)
        assert callable(node.target)
        return node.target(*args, **kwargs)


def _as_before(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A new node: a copy of a node's tensor, laid out as when it was traced."""
    value: Tensor = node.meta["before"]
    with graph.inserting_after(node):
        copy = graph.call_function(laid_out, (node, list(value.stride())))
    copy.meta["val"] = value
    return copy


def _layout(value: Tensor) -> list[int]:
    """The strides that say where numbers are: those of dimensions of more than one."""
    return [s for s, size in zip(value.stride(), value.shape, strict=True) if size > 1]


def _empty(like: Tensor, strides: Any) -> Tensor:
    return torch.empty_strided(like.shape, strides, dtype=like.dtype, device=like.device)


def laid_out(x: Tensor, strides: list[int]) -> Tensor:
    """A copy of a tensor with these strides."""
    return _empty(x, strides).copy_(x)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``torch.bmm`` of ``(models, rows, inner)`` and ``(models, inner, columns)``, by columns."""
    return torch.bmm(b.mT, a.mT).mT


def log_softmax(x: Tensor) -> Tensor:
    """That of the last dimension of ``(…, rows, columns)``, by columns."""
    return _by_columns(lambda part, dim: torch.log_softmax(part, dim), x)


def log_softmax_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """The gradient of ``log_softmax``'s input, from that of its output, by columns."""
    backward = aten._log_softmax_backward_data

    def of_part(gradient: Tensor, output: Tensor, dim: int) -> Tensor:
        result: Tensor = backward(gradient, output, dim, output.dtype)
        return result

    return _by_columns(of_part, gradient, output)


def _by_columns(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """``function(*given, dim)`` of the last dimension, by columns; the last rows, which do not fill
    a register, by rows."""
    rows, dims = given[0].shape[-2], given[0].dim()
    whole = rows // _ROWS * _ROWS
    top = function(*(x[..., :whole, :].mT.contiguous() for x in given), dims - 2).mT
    if whole == rows:
        return top
    result = torch.empty_like(given[0].mT, memory_format=torch.contiguous_format).mT
    result[..., :whole, :] = top
    result[..., whole:, :] = function(*(x[..., whole:, :].contiguous() for x in given), dims - 1)
    return result


_BY_COLUMNS: dict[Any, Callable[..., Tensor]] = {
    aten.bmm.default: product,
    aten._log_softmax.default: log_softmax,
    aten._log_softmax_backward_data.default: log_softmax_backward,
}
_ANY_LAYOUT = {
    aten.bmm.default,
    aten.gather.default,
    aten.sum.dim_IntList,
    aten.transpose.int,
    *_BY_COLUMNS.values(),
}
"""Operations that take a tensor in any layout, besides those on each number by itself. ``argmax``
is left out: it takes four times as long by columns."""
