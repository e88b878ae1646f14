"""Write a table to a file of the user's, by its suffix: whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from results.errors import ResultsError
from results.location import write_file, writing

SUFFIXES = (".csv", ".parquet", ".json")


def save(frame: pd.DataFrame, path: str | Path) -> None:
    """Write ``frame`` as CSV, Parquet or JSON (a list of rows), replacing a file of that name.

    Raises:
        ResultsError: another suffix, a folder that does not exist, or a disk that refuses.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ResultsError(
            f"cannot write {target}: its suffix is none of {', '.join(SUFFIXES)}",
            hint=f"for example {target.stem or 'answer'}.csv",
        )
    if not target.absolute().parent.is_dir():
        raise ResultsError(f"cannot write {target}: there is no folder {target.parent}")
    if suffix == ".csv":
        data = frame.to_csv(index=False).encode()
    elif suffix == ".json":
        data = frame.to_json(orient="records", date_format="iso", indent=1).encode()
    else:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        data = buffer.getvalue()
    with writing(target):
        write_file(str(target.absolute()), data)
