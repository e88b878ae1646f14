"""What a training run printed, kept in a file: nanoGPT, torchtitan, or JSON lines among others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import measured, text_of
from results.user_tables.table_file import TableFile

_SETTINGS = {
    # Of nanoGPT: what an update takes, on all devices together.
    "batch_size_in_tokens": re.compile(r"tokens per iteration will be: ([\d,]+)"),
    # Of torchtitan.
    "global_batch_size": re.compile(r"global batch size:? ([\d,]+)"),
    "tokens_per_example": re.compile(r"sequence length:? ([\d,]+)"),
}
_ASSIGNED = re.compile(r"Overriding: (\w+) = (.+)")
"""As nanoGPT's configurator says what the command line changed."""


def _read(path: Path) -> TableFile | None:
    rows, places, settings = [], [], {}
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        for name, pattern in _SETTINGS.items():
            if match := pattern.search(line):
                settings[name] = match[1].replace(",", "")
        if match := _ASSIGNED.match(line):
            settings[f"config.{match[1]}"] = match[2].strip()
        if row := measured(line):
            rows.append(row)
            places.append(f"line {number}")
    if not rows:
        return None
    if tokens := settings.pop("batch_size_in_tokens", None):
        settings |= {"global_batch_size": tokens, "example_unit": "token", "tokens_per_example": 1}
    table = TableFile.of_rows(path, [{**settings, **row} for row in rows], places)
    return replace(table, means={"step": "step"}, logged=True)


FORMAT = Format(name="printed lines", files=("*.log", "*.out", "*.txt"), read=_read)
