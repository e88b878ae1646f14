"""The packaged workloads by name. Nothing is imported until one is loaded.

A workload is one file of this folder, or of a folder in it. Its constant ``PACKAGED`` names the
workloads that it defines, each with its class and what it is in one line, and ``PLACE`` is the
position of the file in lists. Both are read from the source: listing the names imports neither
torch nor a data library.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workloads.errors import WorkloadError, nearest


class Entry(NamedTuple):
    """Where a packaged workload is defined, and what it is in one line."""

    module: str
    cls: str
    summary: str


def read(folder: Path) -> dict[str, Entry]:
    """The workloads that the files of a folder, and of those inside it, define, by name."""
    files = []
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "PACKAGED = {" in source and "PACKAGED" in (constants := _constants(source)):
            module = ".".join(path.relative_to(folder).with_suffix("").parts)
            files.append((constants.get("PLACE", 100), module, constants["PACKAGED"]))
    return {
        name: Entry(f"workloads.{module}", cls, summary)
        for _, module, packaged in sorted(files, key=lambda file: file[:2])
        for name, (cls, summary) in packaged.items()
    }


def _constants(source: str) -> dict[str, Any]:
    """The two constants of a file."""
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in ("PACKAGED", "PLACE")
    }


REGISTRY: Mapping[str, Entry] = read(Path(__file__).parent)


def names() -> dict[str, str]:
    """The packaged workloads: name -> what it is, in one line."""
    return {name: entry.summary for name, entry in REGISTRY.items()}


def get(name: str) -> Any:
    """The class of a packaged workload.

    Raises:
        WorkloadError: no workload has that name.
    """
    if name not in REGISTRY:
        raise WorkloadError(f"no workload is called {name!r}", hint=nearest(name, REGISTRY))
    entry = REGISTRY[name]
    return getattr(importlib.import_module(entry.module), entry.cls)


def packaged_name(cls: type) -> str | None:
    """The name of a packaged class; ``None`` for a user's."""
    return _NAMES.get((cls.__module__, cls.__qualname__))


def name_of(cls: type) -> str:
    """The name of a packaged class; the class name of a user's."""
    return packaged_name(cls) or cls.__name__


_NAMES = {(entry.module, entry.cls): name for name, entry in REGISTRY.items()}
