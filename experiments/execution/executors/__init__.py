"""Executors: each file here that defines a subclass of ``Executor`` is one, found by its name.

A user's own is named as ``file.py:Class`` in the place of an address.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from experiments import user_classes
from experiments.errors import ExperimentError
from experiments.execution.executors.base import Executor

_CLUSTER = "HOST:PORT"


@cache
def executors() -> dict[str, type[Executor]]:
    """The executors of this folder by name."""
    modules = [
        importlib.import_module(f"{__name__}.{file.name}")
        for file in pkgutil.iter_modules(__path__)
    ]
    kinds = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Executor)
        if value.__module__ == module.__name__ and value.name
    ]
    return {kind.name: kind for kind in kinds}


def names() -> dict[str, str]:
    """What an address can be, each with one line."""
    return {name: (kind.__doc__ or "").splitlines()[0] for name, kind in executors().items()}


def find(address: str) -> type[Executor]:
    """The executor of an address: ``NAME``, ``NAME://…``, ``file.py:Class`` or ``HOST:PORT``.

    Raises:
        ExperimentError: there is no such file, or no executor in it.
    """
    if ".py:" in address:
        path = address.rpartition(":")[0]
        if not Path(path).expanduser().is_file():
            raise ExperimentError(
                f"executor {address!r}: no file {path!r} in {Path.cwd()}",
                hint="a path starts at the current folder",
            )
        kind = user_classes.load("executor", address, None, Executor)
        if not (isinstance(kind, type) and issubclass(kind, Executor)):
            raise ExperimentError(
                f"executor {address!r} is not a subclass of Executor",
                hint="from experiments.execution.executors import Executor",
            )
        return kind
    return executors().get(address.partition("://")[0], executors()[_CLUSTER])
