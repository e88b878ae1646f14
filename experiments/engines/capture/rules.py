"""What a recorded step must not do, seen in the operations of torch that it consists of.

A recording that fails leaves a GPU's allocator in a state in which it cannot give memory back, so
that a step is checked before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

_REFUSED_TAGS = {
    torch.Tag.data_dependent_output: "reads a number on the host",
    torch.Tag.dynamic_output_shape: "has a shape that depends on numbers",
    torch.Tag.nondeterministic_seeded: "draws random numbers",
}
_OF_PYTHON = ("aten::lift_fresh", "aten::lift_fresh_copy")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class CaptureError(RuntimeError):
    """A step breaks a rule of captured steps."""


def check(function: Any, args: Any, kwargs: Any) -> None:
    """
    Raises:
        CaptureError: an operation cannot be recorded.
    """
    name = function._schema.name
    for tag, reason in _REFUSED_TAGS.items():
        if tag in function.tags:
            raise CaptureError(f"{name} {reason}")
    if name in _OF_PYTHON:
        raise CaptureError(f"{name} makes a tensor of Python's numbers")
    given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    if name in _INDEXED and any(x.dtype == torch.bool for x in given[1:]):
        raise CaptureError(f"{name} with a mask reads how many are true")
    if name == "aten::copy_" and given[0].device != given[1].device:
        raise CaptureError(f"{name} between devices waits for the host")
    to = kwargs.get("device")
    if name == "aten::_to_copy" and to is not None and to.type != given[0].device.type:
        raise CaptureError(f"{name} between devices waits for the host")


class Checked(TorchDispatchMode):
    """Within, each operation is checked."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        check(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))
