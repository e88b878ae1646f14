"""Hooks of packaged techniques on all models of a stack, traced once they have been called often.

``vmap`` calls a hook's operations one by one through Python, which takes as long as they do for
small models. A trace is made by the same operations, simplified: the same numbers to the last bit.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from experiments.engines.tracing.simplify import simplified
from experiments.identity import canonical
from experiments.techniques import Techniques

HOOKS = ("before_step", "gradient", "after_step")
CALLS = 200
"""Calls that take about as long by ``vmap`` as a trace and its calls."""
_TRACES = 64
_PACKAGE = Techniques.__module__.rpartition(".")[0]

_Trace = tuple[Callable[..., Any], list[TreeSpec]]
_traces: OrderedDict[Any, _Trace] = OrderedDict()
_calls: Counter[Any] = Counter()


def called(
    hook: str, techniques: Techniques, function: Callable[..., Any], inputs: tuple[Any, ...]
) -> Any:
    """``function(*inputs)``, the ``hook`` of ``techniques`` on a stack.

    Args:
        techniques: as they are in this step; what they hold is a constant of a trace.
        inputs: tensors, nested in dictionaries.
    """
    described = _described(techniques)
    if described is None:
        return function(*inputs)
    flat, structure = tree_flatten(inputs)
    shapes = tuple((x.shape, x.dtype, x.device) for x in flat)
    key = (hook, described, structure, shapes)
    if key not in _traces:
        _calls[key] += 1
        if _calls[key] <= CALLS:
            return function(*inputs)
        del _calls[key]
        _traces[key] = _traced(function, flat, structure)
        while len(_traces) > _TRACES:
            _traces.popitem(last=False)
    _traces.move_to_end(key)
    graph, (of_result,) = _traces[key]
    return tree_unflatten(graph(*flat), of_result)


def _described(techniques: Techniques) -> Any:
    """All that a trace depends on besides its inputs; ``None``: they are not to be traced.

    Hooks of a user's file may do what a trace does not repeat, such as counting their calls.
    """
    parts = []
    for name, part in techniques.parts.items():
        steps = any(part.defines(hook) for hook in HOOKS)
        if not type(part).__module__.startswith(_PACKAGE) or (steps and part.defines("prepare")):
            return None
        parts.append((name, canonical(part.written), part.budget_steps, part.due))
    return tuple(parts)


def _traced(function: Callable[..., Any], flat: list[Any], structure: TreeSpec) -> _Trace:
    of_result: list[TreeSpec] = []

    def flattened(*values: Any) -> list[Any]:
        made, spec = tree_flatten(function(*tree_unflatten(list(values), structure)))
        of_result[:] = [spec]
        return made

    return simplified(make_fx(flattened)(*flat)), of_result
