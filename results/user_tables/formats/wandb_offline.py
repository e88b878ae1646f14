"""``run-ID.wandb``, which Weights & Biases writes of each run: records of protobuf in the blocks of
LevelDB's log. W&B has no reader of it in Python; numbers of fields never change."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import flat
from results.user_tables.names import AXES, plain
from results.user_tables.table_file import TableFile

_BLOCK = 32_768
_HEAD = struct.Struct("<IHB")  # checksum, length, and whether a record begins or ends here
_WHOLE, _FIRST, _LAST = 1, 2, 4
_FIXED = {1: 8, 5: 4}  # bytes of a number that is no varint, by its type
_HISTORY, _CONFIG, _RUN = 2, 5, 17  # of a record
_ITEM, _RUN_ID, _RUN_CONFIG = 1, 1, 4  # of a history or a configuration, and of a run
_KEY, _NESTED, _JSON = 1, 2, 16  # of an item


def _records(data: bytes) -> Iterator[bytes]:
    """The records after the seven bytes of a header; the last may be cut off."""
    at, record = _HEAD.size, b""
    while at + _HEAD.size <= len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEAD.size:
            at += left
            continue
        _, length, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        part = data[at - length : at]
        record = part if kind in (_WHOLE, _FIRST) else record + part
        if kind in (_WHOLE, _LAST) and at <= len(data):
            yield record


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value, an integer or bytes, of each field of a message of protobuf."""
    at = 0
    while at < len(data):
        key, at = _integer(data, at)
        number, kind = divmod(key, 8)
        value, at = _integer(data, at) if kind in (0, 2) else (_FIXED[kind], at)
        at += value if kind else 0
        yield number, data[at - value : at] if kind else value


def _items(message: bytes) -> dict[str, Any]:
    """What a history or a configuration has, by name."""
    items = [[*_fields(item)] for number, item in _fields(message) if number == _ITEM]
    return {
        ".".join(text.decode() for n, text in item if n in (_KEY, _NESTED)): json.loads(text)
        for item in items
        for number, text in item
        if number == _JSON
    }


def _read(path: Path) -> TableFile | None:
    run: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    try:
        for number, message in (f for each in _records(path.read_bytes()) for f in _fields(each)):
            if number == _HISTORY:
                rows.append(_items(message))
            elif number == _RUN:
                run["run"] = dict(_fields(message))[_RUN_ID].decode()
                message = dict(_fields(message)).get(_RUN_CONFIG, b"")
            if number in (_CONFIG, _RUN):
                run |= flat(_items(message), "config.")
    except (LookupError, ValueError, AttributeError) as error:
        raise ResultsError(f"{path} is no log of Weights & Biases that can be read") from error
    if not rows:
        return None
    # Where steps are logged, those of W&B say no more than the order, and a run that went on in
    # another folder counts them again.
    less = {"_step"} if {plain(name) for row in rows for name in row} & {*AXES["step"]} else {}
    rows = [{**run, **{key: row[key] for key in row if key not in less}} for row in rows]
    places = [f"record {number}" for number in range(1, len(rows) + 1)]
    return replace(TableFile.of_rows(path, rows, places), logged=True)


FORMAT = Format(name="run folders of Weights & Biases", files=("run-*.wandb",), read=_read)
