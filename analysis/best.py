"""What counts, as a table: the best counted trial of each batch size, as ``regimes`` takes it.

A minimum over the trials table is another number: it mixes the searches of a study whose space was
changed, and takes the best of more trials at one batch size than at another.
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from analysis.figure_data import FigureData, Query
from results.reader import Results
from results.schema import json_text


def best(results: Results) -> pd.DataFrame:
    """One row a batch size of each curve, at the recorded targets.

    Columns: what makes the curve (workload, optimizer, …), ``target``, ``batch_size``, ``steps`` to
    it (null where it was not ``reached``), the ``trial`` of them with its ``study`` and
    ``metaparameters`` (JSON text), and those of ``Curve.to_frame``: ``trials`` is N, the number of
    feasible trials of which it is the best.

    Raises:
        ResultsError: no trials, or trials that make no curve.
    """
    rows = []
    for curve in FigureData(Query(sources=[results])).trials_of_curves:
        target = None if curve.target is None else str(curve.target)
        for point, cells in zip(curve.points, curve.tabulate(), strict=True):
            first = {name: cells.pop(name) for name in ("batch_size", "steps")}
            of_best = {
                "trial": point.trial,
                "study": point.study,
                "metaparameters": json_text(point.best) if point.best else None,
            }
            reached = {"reached": not point.censored}
            rows.append({**curve.group, "target": target, **first, **reached, **cells, **of_best})
    return pd.DataFrame(rows)


def best_table(results: Results) -> pa.Table:
    """``best`` for SQL; a column of mixed values is text."""
    frame = best(results)
    columns = {}
    for name in frame.columns:
        try:
            columns[str(name)] = pa.array(frame[name], from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[str(name)] = pa.array(frame[name].map(str, na_action="ignore"), pa.string())
    return pa.table(columns)
