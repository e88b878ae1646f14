"""Which trained parameters a technique means: matrices, without norms, biases and embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from experiments.techniques.base import Tensors

EMBEDDINGS = ("*embed*",)
"""Patterns of the names of embeddings."""


def matrices(weights: Tensors, exclude: Sequence[str] = EMBEDDINGS) -> list[str]:
    """The names of parameters of at least two dimensions that match no pattern of ``exclude``.

    Those are the weights of linear layers and convolutions: norms and biases have one dimension.
    """
    return [
        name
        for name, weight in weights.items()
        if weight.dim() > 1 and not any(fnmatchcase(name, pattern) for pattern in exclude)
    ]
