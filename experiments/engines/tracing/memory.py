"""Which tensors of a traced graph share memory, and operations that overwrite what nobody reads.

An operation that writes where its argument was touches half as much memory as one with a new
result: for large batches, whose tensors are larger than a processor's caches, that is its time.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten

RESHAPES = {aten.expand.default, aten.view.default, aten._unsafe_view.default}
VIEWS = RESHAPES | {
    aten.permute.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.transpose.int,
    aten.unsqueeze.default,
}
"""Operations whose result begins where their argument does, in the same memory."""
_IN_PLACE = {
    aten.add.Tensor: (aten.add_.Tensor, True),
    aten.add.Scalar: (aten.add_.Scalar, False),
    aten.div.Tensor: (aten.div_.Tensor, False),
    aten.exp.default: (aten.exp_.default, False),
    aten.mul.Scalar: (aten.mul_.Scalar, False),
    aten.mul.Tensor: (aten.mul_.Tensor, True),
    aten.neg.default: (aten.neg_.default, False),
    aten.relu.default: (aten.relu_.default, False),
    aten.sigmoid.default: (aten.sigmoid_.default, False),
    aten.sub.Tensor: (aten.sub_.Tensor, False),
    aten.tanh.default: (aten.tanh_.default, False),
}
"""The forms that overwrite the first argument, and whether the second may take its place."""
_OUTPUTS = {
    aten.gelu_backward.default: aten.gelu_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
}
"""The forms with a given result, ``grad_input``, which may be the first argument."""


def value_of(node: Any) -> Tensor | None:
    """What a node's tensor is like, without its numbers."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def source_of(node: fx.Node) -> fx.Node | None:
    """The argument with which an operation's result shares memory."""
    schema = getattr(node.target, "_schema", None)
    shares = schema is not None and any(each.alias_info for each in schema.returns)
    if not (shares or node.target in VIEWS or node.target is operator.getitem):
        return None
    source = node.args[0]
    return source if isinstance(source, fx.Node) else None


def owners(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """For each node the first one that has its memory."""
    first: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        source = source_of(node)
        first[node] = node if source is None else first[source]
    return first


def changed_in_place(graph: fx.Graph) -> set[fx.Node]:
    """The tensors that an operation writes into, and those that share memory with one."""
    owner = owners(graph)
    written = {
        owner[argument]
        for node in graph.nodes
        if (schema := getattr(node.target, "_schema", None)) is not None
        for argument, formal in zip(node.args, schema.arguments, strict=False)
        if isinstance(argument, fx.Node)
        and formal.alias_info is not None
        and formal.alias_info.is_write
    }
    return {node for node in graph.nodes if owner[node] in written}


def overwrite(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """Let operations on each number by itself write where an argument was, if nothing reads that,
    or what shares its memory, any later. Results are the same to the last bit.

    Args:
        changed: tensors that the graph wrote into before; they are left as they are.
    """
    owner = owners(graph)
    last_use: dict[fx.Node, int] = {}
    for position, node in enumerate(graph.nodes):
        for each in (node, *node.all_input_nodes):
            last_use[owner[each]] = position
    for position, node in enumerate(graph.nodes):
        if node in changed or node.kwargs:
            continue
        if node.target in _IN_PLACE:
            target, either = _IN_PLACE[node.target]
            places = (0, 1) if either else (0,)
        elif node.target in _OUTPUTS:
            target, places = _OUTPUTS[node.target], (0,)
        else:
            continue
        for place in places:
            argument = node.args[place]
            read = [owner[each] for each in node.args if isinstance(each, fx.Node)]
            free = (
                isinstance(argument, fx.Node)
                and owner[argument] is argument
                and argument.op == "call_function"
                and argument not in changed
                and last_use[argument] == position
                and read.count(argument) == 1
                and _lies_as(node, argument)
            )
            if free:
                others = [each for i, each in enumerate(node.args) if i != place]
                if node.target in _OUTPUTS:
                    node.kwargs = {"grad_input": argument}
                else:
                    node.args = (argument, *others)
                node.target = target
                break


def _lies_as(node: fx.Node, argument: fx.Node) -> bool:
    """Whether a node's tensor may be where that of ``argument`` is, each number in its place."""
    result, given = value_of(node), value_of(argument)
    return (
        result is not None
        and given is not None
        and (result.shape, result.stride(), result.dtype, result.device)
        == (given.shape, given.stride(), given.dtype, given.device)
        and (given.is_contiguous() or (given.dim() > 1 and given.mT.is_contiguous()))
    )
