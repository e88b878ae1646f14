"""Lines of a log: JSON objects, and what nanoGPT and torchtitan print.

A program's own reports (``experiments.programs.reports``) are such lines too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.table_file import TableFile

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NANOGPT = re.compile(r"\b(?:step|iter) (?P<step>\d+): (?P<pairs>.*loss.*)")
_TORCHTITAN = re.compile(r"(?P<split>validate )?\bstep:\s*(?P<step>[\d,]+)\s+(?P<pairs>loss:.*)")
_PAIR = re.compile(r"([A-Za-z][\w /()]*?):?\s+(-?[\d.,]+(?:e[-+]?\d+)?|nan|-?inf)(?![\w.])", re.I)


def metric_name(name: str) -> str:
    """The name of a metric as targets and columns have it: ``val/loss`` is ``val_loss``."""
    return re.sub(r"\W", "_", name)


def text_of(path: Path) -> str:
    """The text of a file.

    Raises:
        ResultsError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error


def flat(value: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Mappings in mappings as one: ``{"config": {"lr": 1}}`` is ``{"config.lr": 1}``."""
    flattened: dict[str, Any] = {}
    for key, each in value.items():
        name = f"{before}{key}"
        nested = isinstance(each, dict) and name != "technique"  # a column that is JSON here
        flattened |= flat(each, f"{name}.") if nested else {name: each}
    return flattened


def json_table(path: Path) -> TableFile:
    """Each line an object, or a list of such; keys are the columns, and one that it lacks is empty.

    Raises:
        ResultsError: a line that is none.
    """
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    text = text_of(path)
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{path} is not JSON: {error}") from error
        text = "\n".join(json.dumps(each) for each in listed)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ResultsError(f"{path} line {number} is no JSON object")
        rows.append(flat(row))
        places.append(f"line {number}")
    return TableFile.of_rows(path, rows, places)


def measured(line: str) -> dict[str, Any] | None:
    """What a printed line reports of a ``step``; None where it is no report."""
    text = _COLOURS.sub("", line).strip()
    if text.startswith("{") and text.endswith("}"):
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return flat(said) if "step" in said else None
    match = _TORCHTITAN.search(text) or _NANOGPT.search(text)
    if not match:
        return None
    split = "val_" if match.groupdict().get("split") else ""
    pairs = {
        split + metric_name(key.strip()): number.rstrip(",").replace(",", "")
        for key, number in _PAIR.findall(match["pairs"])
    }
    return {"step": match["step"].replace(",", ""), **pairs}
