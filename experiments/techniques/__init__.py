"""What else belongs to the training algorithm: the packaged techniques, and the user's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.registry import Registry
from experiments.techniques.base import Step, Technique
from experiments.techniques.composed import Techniques, make_technique
from experiments.techniques.computation.half_weights import HalfWeights
from workloads.user_code.data_files import listed

__all__ = [
    "SETTINGS", "TECHNIQUES", "Step", "Technique", "Techniques", "data_files", "label", "load",
    "names",
]  # fmt: skip

SETTINGS = ("precision", "ghost_batch")
"""Keys of an experiment that are settings of its technique."""
OTHER_KEYS = (*SETTINGS, "ramp", "rule")
"""Keys of ``Study.technique`` that are not techniques of this folder."""


TECHNIQUES = Registry(
    "technique",
    __name__,
    Technique,
    user_base=("batchscale.Technique", Technique),
    user_contract="it defines hooks, for example gradient(self, gradients, weights, state, step)",
    folders=True,
)
label, names = TECHNIQUES.label, TECHNIQUES.names


def load(described: Mapping[str, Any], base: str | None) -> Techniques:
    """The techniques of ``Study.technique``: name or ``file.py:Class`` -> its arguments.

    Raises:
        ExperimentError: an unknown technique or argument, two techniques of one name, or two that
            cannot be together.
    """
    parts: dict[str, Technique] = {}
    if described.get("precision") == "bfloat16_weights":
        parts["precision"] = HalfWeights().with_arguments({"name": "bfloat16_weights"})
    by_label: dict[str, str] = {}
    for name, arguments in described.items():
        if name in OTHER_KEYS:
            continue
        parts[name] = make_technique(TECHNIQUES.get_class(name, base), name, arguments)
        taken = {**dict.fromkeys(TECHNIQUES.packaged), **dict.fromkeys(OTHER_KEYS), **by_label}
        if name not in TECHNIQUES.packaged and label(name) in taken:
            raise ExperimentError(
                f"technique {name} is called {label(name)}, which is another technique",
                hint="rename the class",
            )
        by_label[label(name)] = name
    return Techniques(parts)


def data_files(described: Mapping[str, Any], base: str | None) -> dict[str, dict[str, Path]]:
    """The files that the techniques of ``Study.technique`` read, by technique and path.

    Raises:
        ExperimentError: as ``load``.
        WorkloadError: there is no such file.
    """
    return {
        name: {path: part.located(path, base) for path in listed(part.data_files())}
        for name, part in load(described, base).parts.items()
        if part.defines("data_files")
    }
