"""TensorBoard's event files: those of a folder are one run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.table_file import TableFile

_HEAD = struct.Struct("<QI")  # the length of a record and its checksum; another one follows it
_TYPES = {1: "<f", 2: "<d"}  # DT_FLOAT and DT_DOUBLE


def _records(path: Path) -> Iterator[bytes]:
    """The records of a file; its writer may have been killed within the last one."""
    data, at = path.read_bytes(), 0
    while at + _HEAD.size <= len(data):
        (length, _) = _HEAD.unpack_from(data, at)
        record = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(record) < length:
            return
        yield record
        at += _HEAD.size + length + 4


def _scalar(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    tensor = value.tensor
    if value.HasField("tensor") and not tensor.tensor_shape.dim:
        if tensor.tensor_content and tensor.dtype in _TYPES:
            return float(struct.unpack(_TYPES[tensor.dtype], tensor.tensor_content)[0])
        numbers = [*tensor.float_val, *tensor.double_val]
        return numbers[0] if len(numbers) == 1 else None
    return None


def _settings(value: Any) -> dict[str, Any]:
    """The hyperparameters of ``add_hparams``."""
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
    return {
        f"config.{name}": getattr(each, str(each.WhichOneof("kind")))
        for name, each in data.session_start_info.hparams.items()
        if each.WhichOneof("kind")
    }


def _read(folder: Path) -> TableFile | None:
    from tensorboardX.proto.event_pb2 import Event

    rows, places = [], []
    settings: dict[str, Any] = {}
    for file in sorted(folder.glob("*tfevents*")) if folder.is_dir() else [folder]:
        for number, record in enumerate(_records(file), start=1):
            try:
                event = Event.FromString(record)
                for value in event.summary.value:
                    if value.tag.startswith("_hparams_/session_start"):
                        settings |= _settings(value)
                    elif (scalar := _scalar(value)) is not None:
                        rows.append({"step": event.step, value.tag: scalar})
                        places.append(f"{file.name} record {number}")
            except Exception as error:  # protobuf's, which tensorboardX brings
                raise ResultsError(f"{file} record {number} is no event of TensorBoard") from error
    if not rows:
        return None
    table = TableFile.of_rows(folder, [{**settings, **row} for row in rows], places)
    return replace(table, means={"step": "step"}, logged=True)


FORMAT = Format(
    name="event files of TensorBoard",
    files=("*tfevents*",),
    read=_read,
    runs=lambda files: files if len(files) == 1 else [*dict.fromkeys(f.parent for f in files)],
)
