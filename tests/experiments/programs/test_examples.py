"""The programs of `examples/` are swept, with the regimes of the same model as a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import batchscale as bs

EXAMPLES = Path(__file__).parents[3] / "examples" / "programs"


class Softmax(bs.Classification):
    """The model of softmax.py, with its data."""

    target = "validation_error < 0.06"

    def data(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(pixels))
        x = torch.tensor(pixels[order] / 16, dtype=torch.float32)
        y = torch.tensor(labels[order])
        return {"train": (x[:1297], y[:1297]), "validation": (x[1297:], y[1297:])}

    def model(self) -> torch.nn.Module:
        model = torch.nn.Linear(64, 10)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        return model


@pytest.mark.slow
def test_a_program_has_the_regimes_of_its_model_as_a_class(tmp_path: Path) -> None:
    file = EXAMPLES / "softmax.yaml"
    assert len(file.read_text().splitlines()) < 10
    assert all(finding.passed for finding in bs.check(str(file)))
    same: dict[str, Any] = {"results": tmp_path, "address": "none", "observer": lambda _: None}
    sizes, trials = [4, 16, 64, 256], 6
    overrides = [f"grid.batch_size={sizes}", f"trials={trials}"]
    (of_program,) = bs.regimes(bs.sweep(file, overrides=overrides, **same))
    settings: dict[str, Any] = {"batch_size": sizes, "trials": trials, "budget": "3000 steps"}
    search = {"learning_rate": {"log": [0.01, 10]}}
    of_class = bs.regimes(
        bs.sweep(workload=Softmax, optimizer=["sgd"], search=search, **settings, **same)
    )[0]
    for one, other in ((of_program, of_class), (of_class, of_program)):
        for point, beside in zip(one["points"], other["points"], strict=True):
            assert beside["low"] <= point["steps"] <= beside["high"]
        for name in ("perfect_scaling_until", "maximal_parallelism_from", "min_steps"):
            low, high = one[name]["low"] or 0.0, one[name]["high"] or np.inf
            assert low <= (other[name]["high"] or np.inf)
            assert high >= (other[name]["low"] or 0.0)
