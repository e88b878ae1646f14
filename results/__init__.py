"""What happened: the schema, the one writer, the one reader.

import results
run = results.open("results/runs")         # a folder, a URI, "published", "own", a CSV
run.trials, run.studies, run.measurements, run.sources           # pandas
store = results.Store("results/runs")                            # writes
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.errors import ResultsError as ResultsError
    from results.reader import Results as Results
    from results.reader import open as open
    from results.store import Store as Store
    from results.targets.target import Target as Target

_HOME = {
    "ResultsError": "errors",
    "Target": "targets.target",
    "Results": "reader",
    "open": "reader",
    "Store": "store",
}


def __getattr__(name: str) -> Any:  # lazily: code that needs only a target does not load pandas
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
