"""Writing files for the user: their places, and tables by suffix, whole or not at all."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pandas as pd

from results.errors import ResultsError
from results.storage.cells import as_json, cells, with_texts
from results.storage.disk_errors import writing
from results.storage.masking import is_address, masked
from results.storage.whole_file import write_file

SUFFIXES = (".csv", ".parquet", ".json")


def destination(path: str | Path) -> Path:
    """A file of this machine that is to be written.

    Raises:
        ResultsError: a URI, a folder, or no name at all.
    """
    text = str(path)
    if not text.strip() or "\0" in text:
        raise ResultsError(f"cannot write {text!r}: it cannot name a file")
    if is_address(text):
        raise ResultsError(
            f"cannot write {text}: it is not a local file", hint="write a file here, then copy it"
        )
    if os.path.isdir(path):
        raise ResultsError(f"cannot write {path}: it is a folder", hint="name a file in it")
    return Path(path)


def save(frame: pd.DataFrame, path: str | Path) -> None:
    """Write ``frame`` as CSV, Parquet or JSON (a list of rows), replacing a file of that name.

    Raises:
        ResultsError: another suffix, a folder that does not exist, or a disk that cannot be
            written.
    """
    target = destination(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ResultsError(
            f"cannot write {target}: its suffix is none of {', '.join(SUFFIXES)}",
            hint=f"for example {target.stem or 'answer'}.csv",
        )
    if not target.absolute().parent.is_dir():
        raise ResultsError(f"cannot write {target}: there is no folder {target.parent}")
    frame = with_texts(frame, masked)  # without the keys in its addresses
    if suffix == ".csv":
        data = cells(frame).to_csv(index=False).encode()
    elif suffix == ".json":  # pandas' own has ten decimals, and no infinity
        data = json.dumps(as_json(frame.to_dict("records")), indent=1).encode()
    else:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        data = buffer.getvalue()
    with writing(target):
        write_file(str(target.absolute()), data)
