"""Importers and exporters, packaged and the user's; the function behind ``batchscale export``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from batchscale.analysis import Opened
    from results.exports import Exported
    from results.extensions import Extension
    from results.reader import Results

T = TypeVar("T")


def export(
    kind: str | Callable[..., Exported],
    source: str | Path | Results | Opened,
    *,
    output: str | Path,
    where: str | None = None,
    progress: Callable[[Exported], None] | None = None,
    **options: Any,
) -> Exported:
    """Write results in the form that another program reads; a second export changes nothing.

    Args:
        kind: ``tensorboard``, a run a trial: ``list("exports")``; ``file.py:Name`` or a function of
            your own (docs/results.md).
        source: a results folder or URI, `own`, a CSV or Parquet file of whole curves, or a `Run`.
        output: a new or empty folder, or one that the same kind of export has made.
        where: an SQL condition on trials.
        progress: called with what has been done so far, once a trial.
        options: of the kind, as ``batchscale export KIND --help`` lists them.

    Raises:
        ResultsError: no such kind or option, nothing to write, or a folder that holds something
            else.
    """
    from results.exports import Exported
    from results.reader import Results, open

    exporter = extension("export", kind)
    if isinstance(source, str | Path):
        opened = open(source)
    else:
        opened = source if isinstance(source, Results) else source.results
    part = opened if where is None else opened.where(where)
    return called(exporter, Exported, part, output, progress=progress, **options)


def called(kind: Extension, expected: type[T], *given: Any, **options: Any) -> T:
    """What an importer or exporter returns.

    Raises:
        ResultsError: an option that it does not have, or it returns something else.
    """
    from results.errors import ResultsError

    done = kind(*given, **options)
    if not isinstance(done, expected):
        raise ResultsError(
            f"{kind.verb} {kind.name} returned {type(done).__name__}, not {expected.__name__}",
            hint=f"end it with: return {expected.__name__}(...)",
        )
    return done


def extension(verb: str, kind: str | Callable[..., Any]) -> Extension:
    """A packaged importer or exporter, ``file.py:Name``, or a function.

    Args:
        verb: ``import`` or ``export``.

    Raises:
        ResultsError: there is none.
    """
    from results.errors import ResultsError, nearest
    from results.extensions import KINDS, Extension

    if isinstance(kind, Extension):
        return kind
    if not isinstance(kind, str):
        return Extension(verb, getattr(kind, "__name__", str(kind)), kind)
    path, _, name = kind.rpartition(":")
    if not path.endswith(".py"):
        return KINDS[verb].get(kind)
    from workloads.user_code.user_files import find_file, import_file

    file = find_file(path, Path())
    if file is None:
        raise ResultsError(
            f"{verb} {kind}: there is no file {path}", hint="a path is relative to this folder"
        )
    module = import_file(file)
    functions = [key for key, value in vars(module).items() if callable(value)]
    if name not in functions:
        raise ResultsError(f"{path} has no function {name!r}", hint=nearest(name, functions))
    return Extension(verb, kind, vars(module)[name])
