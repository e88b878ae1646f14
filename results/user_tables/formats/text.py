"""What a training run printed, kept in a file: nanoGPT, torchtitan and Megatron, JSON lines among
others, and what is like these."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import measured, text_of
from results.user_tables.table_file import TableFile

_LINE_END = re.compile(r"\r\n?|\n")
_TOKENS = re.compile(r"tokens per iteration will be: ([\d,]+)")
"""Of nanoGPT: what an update takes, on all devices together."""
_SETTINGS = {
    # Of torchtitan, and of Megatron, which prints its arguments first: ``seq_length ..... 2048``.
    "global_batch_size": re.compile(r"\bglobal[ _]batch[ _]size[ :.]+([\d,]+)"),
    "tokens_per_example": re.compile(r"\bseq(?:uence)?[ _]length[ :.]+([\d,]+)"),
    "config.lr": re.compile(r"^\s*lr \.+ ([\d.e-]+)"),
    "config.seed": re.compile(r"^\s*seed \.+ (\d+)"),
}
_ASSIGNED = re.compile(r"Overriding: (\w+) = (.+)")
"""As nanoGPT's configurator says what the command line changed."""


def _read(path: Path) -> TableFile | None:
    rows, places = [], []
    settings: dict[str, Any] = {}
    for number, line in enumerate(_LINE_END.split(text_of(path)), start=1):
        for name, pattern in _SETTINGS.items():
            if match := pattern.search(line):
                settings[name] = match[1].replace(",", "")
        if match := _TOKENS.search(line):
            size = match[1].replace(",", "")
            settings |= {"global_batch_size": size, "example_unit": "token"}
            settings["tokens_per_example"] = 1
        if match := _ASSIGNED.match(line):
            settings[f"config.{match[1]}"] = match[2].strip()
        if row := measured(line):
            rows.append({**settings, **row})  # the batch size is that of the step: it may grow
            places.append(f"line {number}")
    if not rows:
        return None
    table = TableFile.of_rows(path, rows, places)
    return replace(table, means={"step": "step"}, logged=True)


FORMAT = Format(
    name="printed lines",
    files=("*.log", "*.out", "*.err", "stdout*", "stderr*", "*.txt"),
    read=_read,
)
