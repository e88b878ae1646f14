"""An experiment in Python: keywords, classes and objects become the plain data of a file."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

import workloads
from experiments import optimizers, schedules, techniques
from experiments.config.schema import EITHER_KEYS, GRID_KEYS, ExperimentFile
from experiments.errors import ExperimentError, elsewhere, nearest
from workloads import Workload
from workloads.registry import packaged_name


def mapping(values: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """The content of an experiment file, and the folder that its paths start from.

    Raises:
        ExperimentError: an unknown keyword, or a class that is in no file.
        WorkloadError: no such workload.
    """
    spec, fields, base = _workload(values.get("workload"))
    optimizer = _named(_list(values.get("optimizer", [])), base, optimizers.names())
    for key, packaged in (("schedule", schedules.names()), ("technique", techniques.names())):
        if key in values:
            values = {**values, key: _named(values[key], base, packaged)}
    legal = _arguments(optimizer, values, base)
    field_names = set(fields)
    if spec is not None:
        field_names |= set(workloads.load(spec, fields, base).fields)
    grid: dict[str, Any] = {}
    search: dict[str, Any] = dict(values.get("search") or {})
    data: dict[str, Any] = {"workload": spec, "grid": grid, "search": search}
    for name, value in values.items():
        if name in ("workload", "optimizer", "grid", "search"):
            continue
        if name in GRID_KEYS or (name in EITHER_KEYS and isinstance(value, (list, tuple))):
            grid[name] = _plain(value)
        elif name in ExperimentFile.model_fields:
            data[name] = "off" if name == "keep" and value is None else _plain(value)
        elif name in field_names and not isinstance(value, Mapping):
            grid[name] = _plain(value)
        elif name in legal or isinstance(value, Mapping):
            search[name] = _plain(value)
        else:
            tuned = sorted(field_names | legal)
            raise ExperimentError(
                f"unknown keyword {name!r}: neither a key of an experiment, nor an argument of its "
                "optimizers or schedules, nor a field of its workload",
                hint=elsewhere(name)
                or nearest(name, [*ExperimentFile.model_fields, *GRID_KEYS, *tuned], known=tuned),
            )
    if optimizer:
        grid["optimizer"] = optimizer
    grid.update(_plain(values.get("grid") or {}))
    for name, value in fields.items():
        if name not in search:
            grid.setdefault(name, [value])
    return data, base


def _workload(value: Any) -> tuple[str | None, dict[str, Any], Path]:
    """A workload's name or file, the fields that an object has set, and the folder of the file."""
    here = Path.cwd()
    if value is None or isinstance(value, str):
        return value, {}, here
    fields = value.fields if isinstance(value, Workload) else {}
    kind: type = value if isinstance(value, type) else type(value)
    if not issubclass(kind, Workload):
        raise ExperimentError(
            f"workload {value!r} is neither a workload nor a name",
            hint="derive it from batchscale.Classification or batchscale.Workload",
        )
    name = packaged_name(kind)
    if name is not None:
        return name, fields, here
    file = _file(kind)
    return f"{file.name}:{kind.__qualname__}", fields, file.parent


def _named(value: Any, base: Path, packaged: Collection[str]) -> Any:
    """``value`` with what loads them in the place of classes, in lists and among keys too."""
    if isinstance(value, (list, tuple)):
        return [_named(item, base, packaged) for item in value]
    if isinstance(value, Mapping):
        return {_named(key, base, packaged): item for key, item in value.items()}
    if not isinstance(value, type):
        return value
    kind: str = value.__name__
    if getattr(torch.optim, kind, None) is value:
        return kind
    name = vars(value).get("name")
    return name if name in packaged else _in_file(value, base)


def _in_file(kind: type, base: Path) -> str:
    file = _file(kind)
    inside = file.is_relative_to(base)
    return f"{file.relative_to(base) if inside else file}:{kind.__qualname__}"


def _file(kind: type) -> Path:
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):
        file = None
    if file is None or not Path(file).is_file() or "." in kind.__qualname__:
        raise ExperimentError(
            f"{kind.__qualname__} is not defined in a file, so that workers cannot load it",
            hint=f"put the class at the top level of a file; in a notebook: "
            f"%%writefile {kind.__name__.lower()}.py",
        )
    return Path(file).resolve()


def _arguments(names: list[Any], values: Mapping[str, Any], base: Path) -> set[str]:
    """Metaparameters that the optimizers and schedules of the call have."""
    arguments: set[str] = set()
    for name in names:
        if isinstance(name, str):
            arguments |= optimizers.get(name, str(base)).arguments
    for name in _list(values.get("schedule", "constant")):
        if isinstance(name, str) and (name in schedules.names() or ":" in name):
            arguments |= schedules.get(name, str(base)).arguments
    return arguments


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _plain(value: Any) -> Any:
    """The value as YAML has it: tuples, ranges and arrays become lists, numpy's numbers plain
    ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)) or hasattr(value, "tolist"):
        items = value.tolist() if hasattr(value, "tolist") else list(value)
        return [_plain(item) for item in items] if isinstance(items, list) else items
    return value
