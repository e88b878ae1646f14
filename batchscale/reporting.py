"""``batchscale.report``: of a program that is swept, or of results.

A program that only reports imports nothing heavy for it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

REPORTS, STOP = "BATCHSCALE_REPORTS", "BATCHSCALE_STOP_FILE"
"""Environment variables of a program in a sweep: where it reports, and the file that is there once
it is to stop (``experiments.programs.process``)."""


def report(*sources: Any, step: int | None = None, **values: Any) -> bool | Path:
    """Report what a program measures, ``report(step=250, val_loss=3.41)``; or write the page of
    results, ``report("results/runs")``.

    With ``step``, the number of updates so far, it says so to the sweep whose trial this program
    is, and answers whether to stop. Outside of a sweep it does nothing, and answers False. Values
    are numbers, also those of numpy and of tensors with one element. One process of several
    reports; of a step that is reported again the first values count.

    Without, it is ``batchscale.analysis.report``: see there for its arguments.

    Raises:
        TypeError: a value is not a number.
    """
    if step is None:
        from batchscale.analysis import report as page

        return page(*sources, **values)
    if sources:
        raise TypeError("report(step=…) takes measurements by name: report(step=1, val_loss=3.4)")
    measured = {name: _number(name, value) for name, value in values.items()}
    file = os.environ.get(REPORTS)
    if file is None:
        return False
    line = json.dumps({"step": int(step), **measured}) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())  # at once: lines of several processes do not mix
    finally:
        os.close(descriptor)
    return os.path.exists(os.environ.get(STOP, ""))


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"report: {name} is {value!r}, and not a number") from None
