"""The MLPerf reference convergence points: a run a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.imports.support.mlperf_points import Point, rows, unit_of
from validation.published_curves import lines, number, whole

Row = dict[str, Any]
_SPELT = {"token/2048->sequence?": "token"}


def runs(path: Path, source: str) -> tuple[list[Row], list[Row]]:
    """Studies and trials of the runs.

    Raises:
        ResultsError: a row that has no place, with its line: a value that is no number, or a unit
            that is not the benchmark's.
    """
    held: dict[tuple[Any, ...], list[float]] = {}
    for line, row in lines(path):
        size = whole(path, line, row, "batch_size")
        values = held.setdefault(
            (row["benchmark"], row["version"], size, row["optimizer"], row["creator"]), []
        )
        values.append(number(path, line, row, "raw_value"))
        unit = unit_of(row["benchmark"], _version(row["version"]))
        if unit is None or _SPELT.get(row["raw_unit"], row["raw_unit"]) != unit:
            raise ResultsError(
                f"{path} line {line}: {row['benchmark']} counts in {unit}s, not {row['raw_unit']}"
            )
        if int(row["run"]) != len(values) - 1:
            raise ResultsError(f"{path} line {line}: run {row['run']} is not the next of its point")
    return rows(source, [_point(key, values) for key, values in held.items()])


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.rsplit("_", 1)[1].split(".")))


def _point(key: tuple[Any, ...], values: list[float]) -> Point:
    benchmark, version, size, optimizer, creator = key
    number_ = _version(version)
    unit = unit_of(benchmark, number_)
    assert unit is not None  # every line was held to it
    return Point(
        benchmark=benchmark,
        version=number_,
        batch_size=size,
        unit=unit,
        values=tuple(values),
        name=f"{benchmark}-{size}",
        optimizer=optimizer.lower() or None,
        published={"version": version, **({"creator": creator} if creator else {})},
    )
