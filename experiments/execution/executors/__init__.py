"""Executors: each class of ``Executor`` in a file here is one, found by its name.

A user's executor is given as ``file.py:Class`` instead of an address.
"""

from __future__ import annotations

from experiments.errors import ExperimentError
from experiments.execution.executors.base import Executor
from experiments.registry import Registry

EXECUTORS = Registry(
    "executor",
    __name__,
    Executor,
    user_base=("experiments.execution.executors.base.Executor", Executor),
    user_contract="its method pool(layout) gives the workers of a layout",
    adopt=lambda _, kind: kind,
)
_CLUSTER = "HOST:PORT"


def names() -> dict[str, str]:
    """The names that an address can have, each with one line."""
    kinds = EXECUTORS.packaged.items()
    return {name: (kind.__doc__ or "").partition("\n")[0] for name, kind in kinds}


def find(address: str) -> type[Executor]:
    """The executor of an address: ``NAME``, ``NAME://…``, ``file.py:Class`` or ``HOST:PORT``.

    Raises:
        ExperimentError: there is no such file, or no executor in it.
    """
    if not isinstance(address, str):
        raise ExperimentError(
            f"address {address!r} is no text",
            hint='"none" is without Ray, "auto" finds or starts one',
        )
    if ".py:" in address:
        return EXECUTORS.user_class(address, None)
    kinds = EXECUTORS.packaged
    return kinds.get(address.partition("://")[0], kinds[_CLUSTER])
