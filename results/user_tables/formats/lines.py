"""Lines of a log: JSON objects, and what nanoGPT, torchtitan, Megatron and their like print.

A program's own reports (``experiments.programs.reports``) are such lines too.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.names import AXES, PARTS, is_metric, plain

_GZIP = b"\x1f\x8b"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REPORT = re.compile(
    r"(?:\b(?P<split>val|eval|test)[a-z]*\b[^|]*?)?\b(?:steps?|iter|iteration)[ :=[]+"
    r"(?P<step>\d[\d,]*)(?:\s*/\s*\d+)?\]?(?: \([\d.]+%\))?"
    r"(?: on (?P<set>validation|test) set)?[:,]?\s*[| ]\s*(?P<pairs>.*)",
    re.IGNORECASE,
)
"""``step 250: val loss 3``, ``step:250/900 val_loss:3``, ``iteration 250/ 900 | lm loss: 3``.

What follows has colons or equal signs, or none: ``number of nan iterations: 0`` is one pair.
"""
_EPOCH = re.compile(r"\bepoch\b[^\w.]*(\d+)", re.IGNORECASE)
_NUMBER = r"(-?[\d.,]+(?:e[-+]?\d+)?|nan|-?inf)(?![\w.])"
_PAIRS = {
    separated: re.compile(rf"([A-Za-z][\w /()]*?){by}{_NUMBER}", re.IGNORECASE)
    for separated, by in {True: r"[:=]\s*", False: r"\s+"}.items()
}
_OF_SPLIT = re.compile(r"(?:train|valid|val|eval|test)_")


def metric_name(name: str) -> str:
    """The name of a metric as targets and columns have it: ``val/loss`` is ``val_loss``."""
    return re.sub(r"\W", "_", name)


def text_of(path: Path) -> str:
    """The text of a file, which gzip may have compressed.

    Raises:
        ResultsError: it cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ResultsError(f"{path} is not a whole file of gzip") from error
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


def measured(line: str) -> dict[str, Any] | None:
    """What a printed line reports of a ``step``; None where it is no report."""
    text = _COLOURS.sub("", line).strip()
    if "{" in text and text.endswith("}"):
        try:
            said = flat(json.loads(text[text.index("{") :]))
        except (ValueError, RecursionError):
            return None
        named = {_OF_SPLIT.sub("", plain(key)): each for key, each in said.items()}
        step = next((named[name] for name in AXES["step"] if name in named), None)
        return None if step is None else {**said, "step": step}
    match = _REPORT.search(text)
    if not match:
        return None
    split = PARTS.get((match["set"] or match["split"] or "").lower(), "")
    pairs = {"epoch": epoch[1]} if (epoch := _EPOCH.search(text[: match.start("step")])) else {}
    for key, number in _PAIRS[bool({":", "="} & {*match["pairs"]})].findall(match["pairs"]):
        name = metric_name(key.strip()).removesuffix("_value")
        name = name if _OF_SPLIT.match(name) else split + name
        pairs[name] = number.rstrip(",").replace(",", "")
    if not any(map(is_metric, pairs)):
        return None
    return {"step": match["step"].replace(",", ""), **pairs}
