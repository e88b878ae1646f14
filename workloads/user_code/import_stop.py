"""The import of a script stops at its first call of a function of ``batchscale``.

A script without ``if __name__ == "__main__":`` defines a workload and sweeps it. A driver or worker
that loads the workload from that file must not sweep again.
"""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from workloads.errors import WorkloadError

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_thread = threading.local()


class ImportStopped(BaseException):
    """An imported file has reached a call that trains or analyses."""


class Stop(NamedTuple):
    """Where the import of a file stopped."""

    line: int
    call: str


def entry_point(
    function: Callable[_Arguments, _Answer], name: str
) -> Callable[_Arguments, _Answer]:
    """Make a public function of ``batchscale`` end the import of the user's file that calls it.

    Functions that only read results end it too: a worker has no results, a figure would be drawn
    once for each process, and few definitions follow.
    """

    @functools.wraps(function)
    def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Answer:
        if getattr(_thread, "imports", 0):
            raise ImportStopped(name)
        return function(*arguments, **keywords)

    return call


@contextmanager
def stopping(module: ModuleType) -> Iterator[None]:
    """Execute a user's module inside: such a call ends it quietly, with what it has defined."""
    before = getattr(_thread, "imports", 0)
    _thread.imports = before + 1
    try:
        yield
    except ImportStopped as stop:
        _remember(module, stop)
    finally:
        _thread.imports = before


def stopped(module: ModuleType) -> Stop | None:
    """Where the import of a user's module stopped; ``None`` if it went to its end."""
    return vars(module).get("__batchscale_stop__")


def missing(module: ModuleType, name: str) -> WorkloadError | None:
    """The error of a name that a file defines only after the import has stopped."""
    stop = stopped(module)
    if stop is None or module.__file__ is None:
        return None
    file = Path(module.__file__)
    if name not in _names_after(file, stop.line):
        return None
    return WorkloadError(
        f"{file.name} defines {name!r} only after line {stop.line}, where it calls {stop.call}(): "
        "a file is loaded only up to that line",
        hint=f'move {name!r} above that line, or the call below: if __name__ == "__main__":',
    )


def _remember(module: ModuleType, stop: ImportStopped) -> None:
    frame = stop.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != module.__file__:
        frame = frame.tb_next
    line = frame.tb_lineno if frame is not None else 0
    vars(module)["__batchscale_stop__"] = Stop(line, str(stop))

    def absent(name: str) -> Any:
        error = None if name.startswith("__") else missing(module, name)
        raise error or AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    vars(module)["__getattr__"] = absent


def _names_after(file: Path, line: int) -> Iterator[str]:
    """The names that the file's statements below a line define."""
    for statement in ast.parse(file.read_bytes()).body:
        if statement.lineno <= line:
            continue
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).split(".")[0]
            elif isinstance(node, ast.ClassDef):
                yield node.name
