"""``metrics.csv`` of Lightning's CSVLogger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from results.user_tables.formats.format import Format
from results.user_tables.formats.tables import read_table_file
from results.user_tables.table_file import TableFile


def _read(path: Path) -> TableFile | None:
    table = read_table_file(path)
    if not (table.has("epoch") and table.has("step")):
        return None
    # It logs before it counts: after 138 updates the step is 137.
    return replace(table, means={"step": "step+1"})


FORMAT = Format(name="metrics.csv of Lightning", files=("metrics.csv",), read=_read)
