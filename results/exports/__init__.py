"""Results in the form that another program reads.

A kind is an entry of ``KINDS`` and a module beside this one, whose function takes the results, the
folder to write and ``progress``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import ResultsError, nearest

if TYPE_CHECKING:
    from results.reader import Results


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export has done, or has done so far."""

    kind: str
    output: str
    trials: int
    """Written, or there already."""
    of: int
    """Trials there are to write."""
    measurements: int
    changed: int
    """Trials that were not there in this very form."""


Progress = Callable[[Exported], None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """``home`` is ``module:function``: (results, output, progress) -> Exported."""

    home: str
    summary: str


KINDS: Mapping[str, Kind] = {
    "tensorboard": Kind(
        home="results.exports.tensorboard:write",
        summary="a TensorBoard run a trial, with its metaparameters for the HPARAMS tab",
    ),
}


def export(
    kind: str, found: Results, output: str | Path, progress: Progress | None = None
) -> Exported:
    """Write ``found`` into the folder ``output``; the same again changes nothing.

    Raises:
        ResultsError: no such kind, nothing to write, or a folder that is somebody else's.
    """
    known(kind)
    module, function = KINDS[kind].home.split(":")
    done: Exported = getattr(import_module(module), function)(found, output, progress)
    return done


def known(kind: str) -> None:
    """Refuse what is no kind of export, before anything is read.

    Raises:
        ResultsError: it is none.
    """
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        raise ResultsError(
            f"there is no export of {kind!r}",
            hint=f"did you mean {near}?" if near else f"one of {', '.join(KINDS)}",
        )
