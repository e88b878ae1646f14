"""Fewer and faster operations for a traced graph, with the same numbers.

A small model's step is as long as its operations are many. A trace of ``vmap`` and ``grad`` has
twice as many as the arithmetic needs: views of views, products with 1, what is computed twice, and
constants made anew in each step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from experiments.engines.tracing.columns import compute_by_columns
from experiments.engines.tracing.memory import (
    RESHAPES,
    VIEWS,
    changed_in_place,
    overwrite,
    source_of,
    value_of,
)

aten = torch.ops.aten

_LARGEST_CONSTANT = 2**16
"""Numbers of a constant that is kept: a larger one is as fast to fill as to read."""
_LIKE = (aten.ones_like.default, aten.zeros_like.default, aten.full_like.default)
"""Operations that read nothing of a tensor but its shape and type."""


def simplified(traced: fx.GraphModule) -> Callable[..., Any]:
    """A function that computes what a graph of ATen operations does, which is simplified in place.

    Its inputs may lie in memory otherwise than those that the graph was traced with; what it
    returns is laid out as it was.
    """
    simplify(traced)
    return compiled(traced)


def simplify(traced: fx.GraphModule) -> None:
    """Simplify a graph in place."""
    traced.graph.eliminate_dead_code()
    changed = changed_in_place(traced.graph)
    _keep_constants(traced, changed)
    _shorten_views(traced.graph, changed)
    _drop_products_with_1(traced.graph, changed)
    _merge_equal(traced.graph, changed)
    compute_by_columns(traced.graph, changed)
    traced.graph.eliminate_dead_code()
    overwrite(traced.graph, changed)
    traced.recompile()


def compiled(traced: fx.GraphModule) -> Callable[..., Any]:
    """The graph as a function of local variables alone.

    That of ``torch.fx`` looks up each operation by four attributes in each call, which takes as
    long as a small operation.
    """
    known: dict[str, Any] = {}
    names = {node: f"v{number}" for number, node in enumerate(traced.graph.nodes)}
    last_use: dict[fx.Node, list[str]] = {}
    unseen = set(names)
    for node in reversed(traced.graph.nodes):
        done = [each for each in node.all_input_nodes if each in unseen]
        unseen -= set(done)
        last_use[node] = [names[each] for each in done if each.op != "get_attr"]

    def written(value: Any) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, (list, tuple)):
            inner = "".join(f"{written(each)}, " for each in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if value is None or type(value) in (bool, int):
            return repr(value)
        known[name := f"c{len(known)}"] = value
        return name

    inputs, lines = [], []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            inputs.append(names[node])
        elif node.op == "get_attr":
            known[names[node]] = operator.attrgetter(node.target)(traced)
        elif node.op == "output":
            lines.append(f"return {written(node.args[0])}")
        else:
            called = node.target
            if isinstance(called, torch._ops.OpOverload):
                called = called._op
            arguments = [written(each) for each in node.args]
            arguments += [f"{key}={written(each)}" for key, each in node.kwargs.items()]
            lines.append(f"{names[node]} = {written(called)}({', '.join(arguments)})")
            if last_use[node]:
                lines.append(f"del {', '.join(last_use[node])}")
    body = "".join(f"\n    {line}" for line in lines)
    # Constants are arguments with defaults: they are local variables of the function then.
    scope: dict[str, Any] = {}
    parameters = ", ".join([*inputs, *(["*", *known] if known else [])])
    exec(f"def function({parameters}):{body}", scope)
    function = scope["function"]
    function.__kwdefaults__ = known
    return cast(Callable[..., Any], function)


def _operations(graph: fx.Graph, changed: set[fx.Node]) -> Iterator[fx.Node]:
    """Those that give the same wherever they stand: without random numbers, and without tensors
    that are changed in place."""
    for node in graph.nodes:
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        of_changed = node in changed or changed & set(node.all_input_nodes)
        if node.op == "call_function" and not random and not of_changed:
            yield node


def _is_returned(node: fx.Node) -> bool:
    """Whether the caller gets it, who may keep it or write into it."""
    return any(user.op == "output" for user in node.users)


def _keep_constants(traced: fx.GraphModule, changed: set[fx.Node]) -> None:
    """Compute what depends on no input once, and keep it."""
    constant: dict[fx.Node, Tensor] = {}
    for node in _operations(traced.graph, changed):
        value, compute = value_of(node), cast(Callable[..., Any], node.target)
        if value is None or value.numel() > _LARGEST_CONSTANT:
            continue
        if node.target in _LIKE:
            like = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
            constant[node] = compute(like, *node.args[1:], **node.kwargs)
        elif node.target is aten.lift_fresh_copy.default:  # a number in the code that was traced
            constant[node] = getattr(traced, str(node.args[0]))
        elif all(each in constant for each in node.all_input_nodes):
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: constant[n])
            constant[node] = compute(*args, **kwargs)
    for number, (node, kept) in enumerate(constant.items()):
        users = [user for user in node.users if user not in constant and user.op != "output"]
        if users:
            name = f"constant_{number}"
            traced.register_buffer(name, kept)
            with traced.graph.inserting_before(node):
                attribute = traced.graph.get_attr(name)
            attribute.meta.update(node.meta)
            for user in users:
                user.replace_input_with(node, attribute)


def _shorten_views(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """Make a view of a view one of the tensor itself, and none of what already has its shape."""
    for node in list(_operations(graph, changed)):
        value, source = value_of(node), source_of(node)
        if node.target not in VIEWS or value is None or source is None:
            continue
        base = source
        if (same := _same_as(node, source)) is not None:
            of_its_own = same.op == "call_function" and source_of(same) is None
            if not _is_returned(node) or (of_its_own and not _is_returned(same)):
                node.replace_all_uses_with(same)
            continue
        while base.target in VIEWS:
            base = base.args[0]  # type: ignore[assignment]
        whole = value_of(base)
        if whole is None or base.op == "placeholder":
            continue  # it may lie in memory otherwise than the one that was traced
        if (value.shape, value.stride()) == (whole.shape, whole.stride()):
            if not _is_returned(node) or source_of(base) is None:
                node.replace_all_uses_with(base)
        elif base is not source:
            node.target = aten.as_strided.default
            node.args, node.kwargs = (base, list(value.shape), list(value.stride())), {}


def _same_as(node: fx.Node, source: fx.Node) -> fx.Node | None:
    """What a view of ``source`` equals, however that lies in memory."""
    value, before = value_of(node), value_of(source)
    if value is None or before is None:
        return None
    unchanged = node.target in RESHAPES and before.shape == value.shape
    order = node.args[1] if node.target is aten.permute.default else None
    if unchanged or order == list(range(value.dim())):
        return source
    if node.target is aten.transpose.int and source.target is aten.transpose.int:
        there, back = (set(each.args[1:]) for each in (source, node))
        return source_of(source) if there == back else None
    return None


def _drop_products_with_1(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """As ``torch.addmm`` becomes one where its scale is left at 1."""
    for node in list(_operations(graph, changed)):
        if node.target is not aten.mul.Scalar or node.args[1] != 1 or _is_returned(node):
            continue
        source = cast(fx.Node, node.args[0])
        value, before = value_of(node), value_of(source)
        if value is not None and before is not None and value.dtype == before.dtype:
            node.replace_all_uses_with(source)


def _merge_equal(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """Common subexpressions: computed once."""
    seen: dict[str, fx.Node] = {}
    for node in list(_operations(graph, changed)):
        first = seen.setdefault(repr((node.target, node.args, node.kwargs)), node)
        if first is not node and not _is_returned(node):
            node.replace_all_uses_with(first)
