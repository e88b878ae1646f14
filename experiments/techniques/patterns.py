"""Which parameters and modules of a model a technique means: patterns of names, as ``fnmatch`` has
them, and matrices, without norms, biases and embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BeforeValidator

from experiments.errors import ExperimentError, nearest
from experiments.techniques.base import Tensors

EMBEDDINGS = ("*embed*",)
"""Patterns of the names of embeddings."""


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""One pattern, or a list of them."""


def written(patterns: tuple[str, ...]) -> Any:
    """``Patterns`` in their shortest form."""
    return patterns[0] if len(patterns) == 1 else list(patterns)


def matching(patterns: Iterable[str], names: Iterable[str], owner: str, kind: str) -> set[str]:
    """The names that any of ``patterns`` matches.

    Args:
        owner: what messages call whoever has the patterns.
        kind: what messages call a name: parameter.

    Raises:
        ExperimentError: a pattern matches nothing.
    """
    names = list(names)
    matched: set[str] = set()
    for pattern in patterns:
        of_pattern = {name for name in names if fnmatchcase(name, pattern)}
        if not of_pattern:
            raise ExperimentError(
                f"{owner}: no {kind} is called {pattern!r}", hint=nearest(pattern, names)
            )
        matched |= of_pattern
    return matched


def matrices(weights: Tensors, exclude: Sequence[str] = EMBEDDINGS) -> list[str]:
    """The names of parameters of at least two dimensions that match no pattern of ``exclude``.

    Those are the weights of linear layers and convolutions: norms and biases have one dimension.
    """
    return [
        name
        for name, weight in weights.items()
        if weight.dim() > 1 and not any(fnmatchcase(name, pattern) for pattern in exclude)
    ]
