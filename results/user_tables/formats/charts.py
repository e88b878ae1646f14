"""CSV files that are downloaded from the charts of TensorBoard and of Weights & Biases."""

from __future__ import annotations

import re
from dataclasses import replace

from results.user_tables.table_file import TableFile

_NAME_OF_TAG = re.compile(r"(?:run-)?(?P<run>.+?)-tag-(?P<key>.+)")
"""The name that TensorBoard gives to the file of a tag."""


def of_chart(table: TableFile) -> TableFile:
    """Rows of evaluations, if the table is a chart; other tables as they are."""
    named = _NAME_OF_TAG.fullmatch(table.path.stem)
    if named and {*table.columns} == {"Wall time", "Step", "Value"}:
        cells = {name: [text] * len(table.places) for name, text in named.groupdict().items()}
        return table.with_columns({**cells, "step": table.columns["Step"]}, drop=("Step",))
    return _of_wandb(table)


def _of_wandb(table: TableFile) -> TableFile:
    """A chart that W&B has exported, ``RUN - METRIC`` and its ``__MIN`` and ``__MAX``, as rows."""
    curves = [name for name in table.columns if table.has(f"{name}__MAX") and " - " in name]
    if not curves:
        return table
    axis = next(iter(table.columns))
    rows, places = [], []
    for name in curves:
        run, _, metric = name.rpartition(" - ")
        for at, cell in enumerate(table.columns[name]):
            if cell is not None:
                rows.append({"run": run, "step": table.columns[axis][at], metric: cell})
                places.append(f"{table.places[at]} {run}")
    means = {"step": "step"} if axis.lower() == "step" else {}
    return replace(TableFile.of_rows(table.path, rows, places), means=means)
