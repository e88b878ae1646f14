"""Data of others, and of one's own from elsewhere, brought into a results folder.

A kind is an entry of ``KINDS`` and a module beside this one, whose function takes the path and the
results folder, and the options that the entry names. It reads and checks everything before it
writes anything (``results.imports.commit_import``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import ResultsError, nearest

if TYPE_CHECKING:
    from results.imports.commit_import import Imported


@dataclass(frozen=True, kw_only=True)
class Kind:
    """``home`` is ``module:function``: (path, results, **options) -> Imported."""

    home: str
    summary: str
    options: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "csv": Kind(
        home="results.imports.csv_file:take_in",
        summary="a CSV or Parquet file: batch_size and steps, or whole curves",
        options=("columns", "name", "citation", "licence"),
    ),
    "mlperf": Kind(
        home="results.imports.mlperf:take_in",
        summary="reference convergence points: a checkout of mlcommons/logging",
        options=("columns", "name"),
    ),
    "shallue": Kind(
        home="results.imports.shallue:take_in",
        summary="the release of Shallue et al. 2019, unpacked; what is done is not done again",
        options=("progress",),
    ),
}


def take_in(kind: str, path: str | Path, results: str | Path, **options: Any) -> Imported:
    """Bring ``path`` into the folder or URI ``results``; an option that is None is not given.

    Raises:
        ResultsError: no such kind, an option that it does not have, or rows that have no place.
    """
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        raise ResultsError(
            f"there is no import of {kind!r}",
            hint=f"did you mean {near}?" if near else f"one of {', '.join(KINDS)}",
        )
    given = {name: value for name, value in options.items() if value}
    for name in given:
        if name not in KINDS[kind].options:
            told = "map" if name == "columns" else name
            raise ResultsError(f"import {kind} has no option --{told}", hint="leave it out")
    module, function = KINDS[kind].home.split(":")
    found: Imported = getattr(import_module(module), function)(Path(path), results, **given)
    return found
