"""A user's file trains and analyses nothing while it is imported.

A script may define a workload and sweep it. A driver or worker that loads the workload from that
file must not sweep again: such calls belong below ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from workloads.errors import WorkloadError

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_thread = threading.local()


def entry_point(
    function: Callable[_Arguments, _Answer], name: str
) -> Callable[_Arguments, _Answer]:
    """A public function of ``batchscale``, which a user's file may not call while it is imported.

    Nor may it call those that only read results: a worker has none, and a figure would be drawn
    once for each process.
    """

    @functools.wraps(function)
    def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Answer:
        if file := getattr(_thread, "importing", None):
            raise WorkloadError(
                f"{file.name} calls batchscale.{name}() while it is loaded, outside of "
                "if __name__ == '__main__'",  # a traceback shows no hint
                hint='put the call below: if __name__ == "__main__":',
            )
        return function(*arguments, **keywords)

    return call


@contextmanager
def importing(file: Path) -> Iterator[None]:
    """Execute a user's module inside."""
    before = getattr(_thread, "importing", None)
    _thread.importing = file
    try:
        yield
    finally:
        _thread.importing = before
