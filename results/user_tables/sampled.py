"""Histories that are samples: first hits in them come too late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from results.counts import count
from results.errors import ResultsError
from results.user_tables.table_file import TableFile, number

_SAMPLES = (500, 1000)
"""The rows that ``run.history()`` of W&B, and that TensorBoard, keeps of a longer run."""
_CALLS = "_step"


def refuse_sampled(table: TableFile, *, complete: bool) -> None:
    """Refuse a history whose gaps no logging interval explains.

    A complete one is logged every k steps, or at growing distances; a sample of it is not. As many
    rows as a sample has, with a tenth of uneven gaps, are one; of another length it takes a history
    of W&B, with more uneven gaps than even.

    Raises:
        ResultsError: a run of the table is such a sample.
    """
    axis = _CALLS if table.has(_CALLS) else "step"
    if complete or not table.has(axis):
        return
    names = table.columns.get("run", [table.path.stem] * len(table.places))
    runs: dict[str, list[int]] = {}
    for run, cell in zip(names, table.columns[axis], strict=True):
        if (step := number(cell)) is not None and abs(step) < 2.0**63:
            runs.setdefault(str(run), []).append(int(step))
    history = axis == _CALLS or table.means.get("step") == _CALLS
    for run, steps in runs.items():
        _refuse(table, run, sorted({*steps}), history=history)


def _refuse(table: TableFile, name: str, steps: Sequence[int], *, history: bool) -> None:
    gaps = [after - before for before, after in pairwise(steps)]
    # Growing distances, rounded to whole steps, fall by one at most.
    growing = all(after >= before - max(1, 0.05 * before) for before, after in pairwise(gaps))
    if len(gaps) < 20 or growing:
        return
    uneven = 1 - Counter(gaps).most_common(1)[0][1] / len(gaps)
    if (len(steps) in _SAMPLES and uneven > 0.1) or (history and uneven > 0.5):
        raise ResultsError(
            f"{table.path}: the history of {name} is sampled: {count(len(steps), 'row')} up to "
            f"step {steps[-1]}, {uneven:.0%} of the gaps uneven",
            hint="export all rows: pandas.DataFrame(run.scan_history()), or the run's history "
            "artifact; run.history() returns a sample. If it is complete: batchscale import PATH "
            "--complete",
        )
