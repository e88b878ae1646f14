"""reference convergence points: a checkout of mlcommons/logging

They are in ``mlperf_logging/rcp_checker/<usage>_<version>/rcps_<benchmark>.json``. Versions repeat
the points of those before: the newest of each benchmark is taken, also where it was renamed. Each
submitter's points of a benchmark are a curve.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from results.errors import ResultsError
from results.extensions import Option
from results.imports import Imported, commit_import
from results.imports.support.mlperf_points import UNITS, Point, Unit, rows, unit_of
from results.storage.location import Location

_FOLDER = re.compile(r"(?:training_|hpc_)?(\d+(?:\.\d+)+)")
_PLACES = ("mlperf_logging/rcp_checker", "rcp_checker", ".")
_RENAMED = {"gnn": "rgat", "sd": "stable_diffusion", "ssd": "retinanet"}
_SSD = (2, 0)
"""Before this version, ssd was another model on another data set."""

_EPOCHS = 10_000
"""More epochs than any benchmark takes, and fewer samples than any benchmark counts."""

Version = tuple[int, ...]


class _DoubledError(Exception):
    """A JSON object that has a key twice; the later one would hide the other."""


def import_mlperf(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="The unit of a benchmark that has none here: --map new_benchmark=sample.",
            flag="--map",
            metavar="BENCHMARK=UNIT",
        ),
    ] = None,
    name: Annotated[
        str | None, "The experiment that the rows become, and their source; else mlperf."
    ] = None,
) -> Imported:
    """Import the points of the newest version of each benchmark into ``results``.

    Raises:
        ResultsError: there are none, or an entry that cannot be placed; nothing is written.
    """
    units = _units(columns or {})
    newest = _newest(path)
    wrong: list[str] = []
    points = [
        p for benchmark in newest for p in _points(benchmark, *newest[benchmark], units, wrong)
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ResultsError(
            f"{wrong[0]}{more}",
            hint="correct or remove that entry; a unit that is missing is given by "
            f"--map BENCHMARK=UNIT, one of {', '.join(UNITS)}",
        )
    experiment = name or "mlperf"
    studies, trials = rows(experiment, points)
    files = [file for _, file, _ in newest.values()]
    source = {
        "source": experiment,
        "citation": "MLPerf Training reference convergence points, MLCommons; Mattson et al., "
        "MLPerf Training Benchmark, MLSys 2020 (arXiv:1910.01500)",
        "licence": "Apache-2.0",
        "address": "https://github.com/mlcommons/logging",
        "checksum": _checksum(files, units),
        "notes": "newest version of each benchmark; "
        + ", ".join(sorted(f"{file.parent.name}/{file.name}" for file in files)),
    }
    return commit_import(
        results, experiment=experiment, sources=[source], studies=studies, trials=trials
    )


def _units(given: Mapping[str, str]) -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for benchmark, text in given.items():
        if text not in UNITS:
            raise ResultsError(
                f"--map {benchmark}={text}: {text!r} is not a unit",
                hint=f"one of {', '.join(UNITS)}",
            )
        units[benchmark] = next(unit for unit in UNITS if unit == text)
    return units


def _newest(path: Path) -> dict[str, tuple[Version, Path, dict[str, Any]]]:
    """Benchmark to the version, file and entries of its newest version."""
    if not os.path.isdir(path):
        raise ResultsError(f"there is no folder {path}", hint="a checkout of mlcommons/logging")
    newest: dict[str, tuple[Version, Path, dict[str, Any]]] = {}
    for version, file in _files(path):
        by_benchmark: dict[str, dict[str, Any]] = {}
        for key, entry in _read(file).items():
            by_benchmark.setdefault(_benchmark(file, key, entry, version), {})[key] = entry
        for benchmark, entries in by_benchmark.items():
            if benchmark not in newest or version > newest[benchmark][0]:
                newest[benchmark] = (version, file, entries)
    if not newest:
        raise ResultsError(
            f"{path} holds no rcps_<benchmark>.json in a folder training_<version>",
            hint="a checkout of mlcommons/logging has them in mlperf_logging/rcp_checker",
        )
    return newest


def _files(path: Path) -> Iterator[tuple[Version, Path]]:
    for place in _PLACES:
        for file in sorted((path / place).glob("*/rcps_*.json")):
            if match := _FOLDER.fullmatch(file.parent.name):
                yield tuple(map(int, match[1].split("."))), file


def _read(file: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise _DoubledError(next(name for name in names if names.count(name) > 1))
        return dict(pairs)

    try:
        entries = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except _DoubledError as error:
        raise ResultsError(f"{file}: {error.args[0]!r} occurs twice", hint=_CORRECT) from error
    except UnicodeDecodeError as error:
        raise ResultsError(f"{file} is not UTF-8 text", hint=_CORRECT) from error
    except json.JSONDecodeError as error:
        raise ResultsError(
            f"{file} line {error.lineno}: not JSON: {error.msg}", hint=_CORRECT
        ) from error
    if not isinstance(entries, dict):
        raise ResultsError(f"{file} is not an object of entries by name", hint=_CORRECT)
    return entries


_CORRECT = "correct or remove that file; nothing was written"


def _benchmark(file: Path, key: str, entry: Any, version: Version) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("Benchmark"), str):
        raise ResultsError(f"{file}: {key} has no Benchmark", hint=_CORRECT)
    name = str(entry["Benchmark"])
    return name if name == "ssd" and version < _SSD else _RENAMED.get(name, name)


def _points(
    benchmark: str,
    version: Version,
    file: Path,
    entries: Mapping[str, Any],
    units: Mapping[str, Unit],
    wrong: list[str],
) -> Iterator[Point]:
    """The points of a benchmark; ``wrong`` gets a line for each entry that is not valid."""
    for key, entry in entries.items():
        samples = "samples to converge" in entry
        values = entry.get("samples to converge" if samples else "Epochs to converge")
        unit = "sample" if samples else units.get(benchmark) or unit_of(benchmark, version)
        size, used = entry.get("BS"), entry.get("Hyperparams") or {}
        why = None
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            why = f"BS is {size!r}, not a whole number of at least 1"
        elif not isinstance(values, list) or not values:
            why = 'it has no list "Epochs to converge" or "samples to converge"'
        elif bad := [value for value in values if not _positive(value)]:
            why = f"{bad[0]!r} is not a number above 0"
        elif not isinstance(used, dict):
            why = "its Hyperparams are not an object"
        elif unit is None:
            why = f"the unit that {benchmark} counts in is not known"
        elif unit == "epoch" and max(values) > _EPOCHS:
            why = f"{max(values):g} cannot be a number of epochs"
        elif unit in ("sample", "token") and min(values) < size:
            why = f"{min(values):g} {unit}s are less than one batch of {size}"
        if why is not None or unit is None:
            wrong.append(f"{file}: {key}: {why}")
            continue
        optimizer = used.get("opt_name", used.get("optimizer"))
        facts = {name: entry[name] for name in ("Creator", "When", "Platform") if name in entry}
        yield Point(
            benchmark=benchmark,
            version=version,
            batch_size=size,
            unit=unit,
            values=tuple(map(float, values)),
            name=key,
            submitter=str(entry["Creator"]) if entry.get("Creator") else None,
            optimizer=str(optimizer).lower() if optimizer else None,
            precision=str(entry["Precision"]).lower() if "Precision" in entry else None,
            metaparameters=used,
            published={"benchmark": entry["Benchmark"], "version": file.parent.name, **facts},
        )


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0


def _checksum(files: list[Path], units: Mapping[str, Unit]) -> str:
    digest = hashlib.sha256(json.dumps(dict(units), sort_keys=True).encode())
    for file in sorted(files):
        digest.update(file.parent.name.encode() + file.name.encode() + file.read_bytes())
    return f"sha256:{digest.hexdigest()}"
