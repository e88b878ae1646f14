"""The folder of MLflow: a run is a folder with ``meta.yaml``, ``metrics`` and ``params``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import text_of
from results.user_tables.table_file import TableFile


def _files(folder: Path) -> dict[str, Path]:
    return {str(f.relative_to(folder)): f for f in sorted(folder.rglob("*")) if f.is_file()}


def _read(meta: Path) -> TableFile | None:
    run = meta.parent
    params = {f"params.{name}": text_of(f) for name, f in _files(run / "params").items()}
    logged = []
    for metric, file in _files(run / "metrics").items():
        for number, line in enumerate(text_of(file).splitlines(), start=1):
            try:
                time, value, step, *_ = line.split()
                row = {"run": run.name, **params, "step": int(step), metric: float(value)}
            except ValueError as error:
                raise ResultsError(f"{file} line {number} is no time, value and step") from error
            logged.append((int(time), f"{metric} line {number}", row))
    logged.sort(key=lambda each: each[0])
    rows, places = [row for *_, row in logged], [place for _, place, _ in logged]
    if not rows:
        return None
    table = TableFile.of_rows(meta, rows, places)
    return replace(table, means={"step": "step"}, logged=True)


FORMAT = Format(
    name="runs of MLflow",
    files=("meta.yaml",),
    read=_read,
    runs=lambda files: [each for each in files if (each.parent / "metrics").is_dir()],
)
