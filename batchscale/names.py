"""``batchscale list``: the names of each kind, each with one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_NAMES = {
    "workloads": "workloads",
    "texts": "workloads.text.sources",
    "figures": "analysis.figures",
    "experiments": "experiments.config.sources",
    "executors": "experiments.execution.executors",
}
"""Kinds whose module has ``names()``: each name with one line."""


def listed(kind: str) -> dict[str, str]:
    """The names of a kind, each with one line: what it is, and its default search space."""
    return _LISTS[kind]() if kind in _LISTS else import_module(_NAMES[kind]).names()


def _optimizers() -> dict[str, str]:
    from experiments.optimizers import get, names

    def engine(optimizer: Any) -> str:
        return "" if optimizer.stacks else "; trains by the module engine: no gain from stacking"

    def rounding(optimizer: Any) -> str:
        return "; amplifies rounding" if optimizer.amplifies_rounding else ""

    return {
        name: f"{_sentence(type(optimizer))}; tuned: {_space(optimizer.space)}"
        f"{engine(optimizer)}{rounding(optimizer)}"
        for name, optimizer in ((name, get(name)) for name in names())
    }


def _schedules() -> dict[str, str]:
    from experiments.schedules import get, names

    return {name: _space(get(name).space) or "nothing tuned" for name in names()}


def _techniques() -> dict[str, str]:
    from experiments.techniques import TECHNIQUES

    return {name: _sentence(kind) for name, kind in TECHNIQUES.packaged.items()}


def _layouts() -> dict[str, str]:
    from experiments.parallel import summaries

    return summaries()


def _exchanged(verb: str) -> dict[str, str]:
    from results.extensions import KINDS

    return KINDS[verb].names()


_LISTS: Mapping[str, Callable[[], dict[str, str]]] = {
    "optimizers": _optimizers,
    "schedules": _schedules,
    "techniques": _techniques,
    "layouts": _layouts,
    "imports": lambda: _exchanged("import"),
    "exports": lambda: _exchanged("export"),
}
KINDS = (*_NAMES, *_LISTS)


def _sentence(kind: type) -> str:
    """The first sentence of a docstring."""
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".").replace("``", "")


def _space(space: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} " + ", ".join(f"{scale} {ends}" for scale, ends in values.items())
        if isinstance(values, Mapping)
        else f"{name} = {values}"
        for name, values in space.items()
    )
