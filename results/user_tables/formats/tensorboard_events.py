"""The records of TensorBoard's event files, and what one says."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.names import PARTS

HPARAMS = re.compile(r"\d{9,}(\.\d+)+")
"""The folder that ``add_hparams`` of torch makes."""
_HEAD = struct.Struct("<QI")  # the length of a record and its checksum; another one follows it
_TYPES = {1: "<f", 2: "<d"}  # DT_FLOAT and DT_DOUBLE


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole records of a file, or of a part that begins with one, each with the byte behind it.

    Its writer may be within the last one, or have been killed there.
    """
    at = 0
    while at + _HEAD.size <= len(data):
        (length, _) = _HEAD.unpack_from(data, at)
        start, at = at + _HEAD.size, at + _HEAD.size + length + 4
        if at > len(data):
            return
        yield at, data[start : start + length]


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


def row_of(file: Path, record: bytes, within: str = "") -> dict[str, Any]:
    """The step of a record, its numbers by their tags, and hyperparameters (``config.NAME``).

    Args:
        within: the folder of the file, below that of the run; Keras has one for each split.

    Raises:
        ResultsError: it is no event.
    """
    from tensorboardX.proto.event_pb2 import Event

    row: dict[str, Any] = {}
    try:
        event = Event.FromString(record)
        for value in event.summary.value:
            if value.tag.startswith("_hparams_/session_start"):
                row |= _settings(value)
            elif not HPARAMS.fullmatch(within) and (scalar := _scalar(value)) is not None:
                # Keras counts epochs there, and updates in evaluation_loss_vs_iterations.
                count = "epoch" if within and value.tag.startswith("epoch_") else "step"
                name = within if within.startswith(f"{value.tag}_") else value.tag
                row |= {count: event.step, PARTS.get(within, "") + name: scalar}
    except Exception as error:  # protobuf's, which tensorboardX brings
        raise ResultsError(f"{file} holds what is no event of TensorBoard") from error
    return row
