"""The digitized curves of 2019, the language-model curves of 2024 (a point a row), and the MLPerf
reference convergence points (a run a row)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.imports.support.mlperf_points import Point, rows, unit_of
from results.schema import STUDIES
from results.user_tables.trials import study_of

Row = dict[str, Any]

_DATASETS = {"mnist": "mnist", "cifar_10": "cifar10", "lm1b": "lm1b", "c4": "c4"}
_MODELS = {"resnet_8": "resnet8"}
_OPTIMIZERS = {"nesterov_momentum": "nesterov"}
"""Names that the packaged workloads and optimizers have for the same things."""
_METRICS = {"validation_error", "validation_cross_entropy"}


def digitized(path: Path, source: str) -> tuple[list[Row], list[Row]]:
    """Studies and trials of the curves of Shallue et al.

    Raises:
        ResultsError: a row that has no place, with its line.
    """
    return _points(path, source, "relative_error", _reading)


def language_models(path: Path, source: str) -> tuple[list[Row], list[Row]]:
    """Studies and trials of the curves of Zhang et al.: steps as fitted; those logged beside them.

    Raises:
        ResultsError: a row that has no place, with its line.
    """
    return _points(path, source, "steps_logged", _logged)


def lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a reference file, each with its line."""
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        for row in reader:
            yield reader.line_num, row


def number(path: Path, line: int, row: Mapping[str, str], name: str) -> float:
    """A cell as a number above 0.

    Raises:
        ResultsError: it is none, with its line.
    """
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ResultsError(f"{path} line {line}: {name} is {row.get(name)!r}, not a number above 0")
    return value


def whole(path: Path, line: int, row: Mapping[str, str], name: str) -> int:
    """A cell as a whole number of at least 1.

    Raises:
        ResultsError: it is none, with its line.
    """
    value = number(path, line, row, name)
    if value != int(value):
        raise ResultsError(f"{path} line {line}: {name} is {row[name]!r}, not a whole number")
    return int(value)


def _points(path: Path, source: str, extra: str, note: Any) -> tuple[list[Row], list[Row]]:
    trials: list[Row] = []
    curves: dict[str, list[Row]] = {}
    for line, row in lines(path):
        group = _group(path, line, row, source)
        steps, further = (number(path, line, row, name) for name in ("steps", extra))
        trial = {
            **group,
            "study": study_of(group),
            "trial": f"{source}-line-{line}",
            "role": "repeat",
            "status": "COMPLETE",
            "stop_reason": "target",
            "steps_to_target": steps,
            "relative_error": further if extra == "relative_error" else None,
            "steps_run": math.ceil(steps),
            "examples_run": round(steps * group["batch_size"]),
            "as_published": {
                **{name: row[name] for name in ("model", "dataset", "optimizer")},
                "steps": steps,
                extra: further,
            },
        }
        trials.append(trial)
        key = study_of({**group, "batch_size": None})
        curves.setdefault(key, []).append(trial)
    studies: dict[str, Row] = {}
    for curve in curves.values():
        text = note(curve)
        for trial in curve:
            if trial["study"] in studies:
                raise ResultsError(f"{path} has batch size {trial['batch_size']} of a curve twice")
            studies[trial["study"]] = {**_study(trial), "notes": [text] if text else None}
    return list(studies.values()), trials


def _group(path: Path, line: int, row: Mapping[str, str], source: str) -> Row:
    if row["source"] != source or row["dataset"] not in _DATASETS:
        raise ResultsError(
            f"{path} line {line}: a curve of {row['source']} on {row['dataset']} has no place here"
        )
    if row["target_metric"] not in _METRICS:
        raise ResultsError(f"{path} line {line}: no such metric: {row['target_metric']}")
    dataset = _DATASETS[row["dataset"]]
    model = _MODELS.get(row["model"], row["model"].replace("_", "-"))
    text = dataset == "c4"
    return {
        "experiment": source,
        "source": source,
        "workload": f"{dataset}-{model}",
        "dataset": dataset,
        "model": model,
        "optimizer": _OPTIMIZERS.get(row["optimizer"], row["optimizer"]),
        "batch_size": whole(path, line, row, "batch_size"),
        "example_unit": "sequence" if text else "example",
        "tokens_per_example": 512 if text else None,
        "fields": {"parameters": _parameters(model)} if text else None,
        "target_metric": row["target_metric"],
        "target_value": number(path, line, row, "target_value"),
        "lower_is_better": True,
    }


def _parameters(model: str) -> int:
    """``transformer-85m`` has about 85 million."""
    return int(model.rsplit("-", 1)[1].removesuffix("m")) * 1_000_000


def _study(trial: Row) -> Row:
    target = f"{trial['target_metric']} < {trial['target_value']:g}"
    columns = {name: trial[name] for name in STUDIES.names if name in trial}
    return {**columns, "targets": [target]}


def _reading(curve: list[Row]) -> str:
    coarse = [t["batch_size"] for t in curve if t["as_published"]["relative_error"] > 0.05]
    at = f", about 10 % at {', '.join(map(str, coarse))}" if coarse else ""
    return f"read off a figure: each point is known to about 3 %{at}"


def _logged(curve: list[Row]) -> str | None:
    other = [
        f"{t['as_published']['steps_logged']:,.0f} at {t['batch_size']}"
        for t in curve
        if t["as_published"]["steps_logged"] != t["steps_to_target"]
    ]
    return (
        f"the authors' log has other steps than they fitted: {', '.join(other)}" if other else None
    )


_SPELT = {"token/2048->sequence?": "token"}


def convergence_points(path: Path, source: str) -> tuple[list[Row], list[Row]]:
    """Studies and trials of the MLPerf reference convergence points, a run a row.

    Raises:
        ResultsError: a row that has no place, with its line: a value that is no number, or a unit
            that is not the benchmark's.
    """
    values_of: dict[tuple[Any, ...], list[float]] = {}
    for line, row in lines(path):
        size = whole(path, line, row, "batch_size")
        values = values_of.setdefault(
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
    return rows(source, [_point(key, values) for key, values in values_of.items()])


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.rsplit("_", 1)[1].split(".")))


def _point(key: tuple[Any, ...], values: list[float]) -> Point:
    benchmark, version, size, optimizer, creator = key
    unit = unit_of(benchmark, _version(version))
    assert unit is not None  # checked for every line
    return Point(
        benchmark=benchmark,
        version=_version(version),
        batch_size=size,
        unit=unit,
        values=tuple(values),
        name=f"{benchmark}-{size}",
        submitter=creator or None,
        optimizer=optimizer.lower() or None,
        published={"version": version, **({"creator": creator} if creator else {})},
    )
