"""Ray Tune: ``result.json`` (JSON lines), and ``progress.csv`` beside it, which has the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from results.user_tables.formats.format import Format
from results.user_tables.formats.json_files import json_table
from results.user_tables.formats.tables import read_table_file
from results.user_tables.table_file import TableFile


def _read(path: Path) -> TableFile:
    return replace(json_table(path), logged=True)


RESULT = Format(name="result.json of Ray Tune", files=("result.json",), read=_read)
PROGRESS = Format(name="progress.csv of Ray Tune", files=("progress.csv",), read=read_table_file)
