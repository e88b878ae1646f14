"""TensorBoard's event files, by tensorboardX: its messages, its records, its checksums.

Its writers date a file by the clock and name it by the machine, so that a second export would add
files to the first. Here a run has one file with a fixed name, written whole.
"""

from __future__ import annotations

import filecmp
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.proto.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import (
    HParamsPluginData,
    SessionEndInfo,
    SessionStartInfo,
)
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter

from results.storage.disk_errors import writing
from results.storage.whole_file import TEMPORARY

FILE = "events.out.tfevents.batchscale"
"""The one file of a run; TensorBoard recognizes such files by the middle of the name."""

Value = str | bool | float


def scalars(step: int, wall_time: float, values: Mapping[str, float]) -> Any:
    """The values of an evaluation by their tags, in single precision, as TensorBoard has them."""
    points = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    return Event(step=step, wall_time=wall_time, summary=Summary(value=points))


def started(wall_time: float, group: str, values: Mapping[str, Value]) -> Any:
    """A run's hyperparameters, for the HPARAMS tab. Runs of one ``group`` are one row there."""
    start = SessionStartInfo(group_name=group, start_time_secs=wall_time)
    for name, value in values.items():
        kind = {bool: "bool", str: "string"}.get(type(value), "number")
        setattr(start.hparams[name], f"{kind}_value", value)
    return _hparams("session_start_info", wall_time, session_start_info=start)


def ended(wall_time: float, *, failed: bool) -> Any:
    """How a run ended, for the HPARAMS tab."""
    status = STATUS_FAILURE if failed else STATUS_SUCCESS
    end = SessionEndInfo(status=status, end_time_secs=wall_time)
    return _hparams("session_end_info", wall_time, session_end_info=end)


def write(folder: Path, began: float, events: Iterable[Any]) -> bool:
    """Write a run's file, whole or not at all; whether it is new or was different.

    Raises:
        ResultsError: the disk cannot be written.
    """
    path = folder / FILE
    temporary = folder / f".{uuid.uuid4().hex[:8]}{TEMPORARY}"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            records = RecordWriter(str(temporary.absolute()))
            for event in (Event(wall_time=began, file_version="brain.Event:2"), *events):
                records.write(event.SerializeToString(deterministic=True))
            records.close()
            if path.is_file() and filecmp.cmp(temporary, path, shallow=False):
                return False
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return True


def _hparams(name: str, wall_time: float, **content: Any) -> Any:
    data = HParamsPluginData(version=0, **content).SerializeToString(deterministic=True)
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data)
    value = Summary.Value(tag=f"_hparams_/{name}", metadata=SummaryMetadata(plugin_data=plugin))
    return Event(wall_time=wall_time, summary=Summary(value=[value]))
