"""Studies and comparisons that the tests of transferred weights share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from experiments.plan import Study, Trial, WorkloadRef
from tests.problems import engine, largest_difference, study

KINDS = ["module", "stacked"]


def of_folder(base: Path, workload: str = "digits-mlp", **changes: Any) -> Study:
    ref = WorkloadRef(spec=workload, base=str(base))
    return study(workload=ref, **{"precision": "float64", "batch_size": 16, **changes})


def file_weights(base: Path, name: str = "first.safetensors") -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(base / name)


def twins(of: Study, pack: tuple[Trial, ...], steps: int = 100) -> list[dict[str, Tensor]]:
    """The weights after so many steps, the same from both engines."""
    engines = [engine(kind, of, pack) for kind in KINDS]
    for each in engines:
        each.advance(steps)
    for row in range(len(pack)):
        module, stacked = (each.weights(row) for each in engines)
        assert largest_difference(module, stacked) < 1e-8
    metrics = [each.evaluate("validation") for each in engines]
    for a, b in zip(*metrics, strict=True):
        assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-8)
    return [engines[0].weights(row) for row in range(len(pack))]


EXPERIMENT = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: TECHNIQUE
trials: 2
budget: 20 steps
target: validation_error < 0.3
"""


def experiment(base: Path, technique: str) -> Path:
    (base / "my.yaml").write_text(EXPERIMENT.replace("TECHNIQUE", technique))
    return base / "my.yaml"
