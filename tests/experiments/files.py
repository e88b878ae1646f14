"""A folder with a workload, an optimizer and an experiment file of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from experiments.config.compile import Experiment, load
from experiments.errors import ExperimentError

RIGHT = yaml.safe_load(Path(__file__).with_name("wrong_files").joinpath("bases.yaml").read_text())
"""Right experiment files, ``bases``, and the users' files that lie beside them, ``files``."""

WORKLOAD = '''"""A workload."""
import torch
from torch import nn

from workloads import Classification


class MyModel(Classification):
    """Forty examples."""

    target = "validation_error < 0.25"
    width: int = 4
    kind: str = "plain"

    def data(self):
        x = torch.arange(160.0).view(40, 4) / 160
        y = torch.arange(40) % 2
        return {"train": (x, y), "validation": (x[:8], y[:8])}

    def model(self):
        return nn.Sequential(nn.Linear(4, self.width), nn.ReLU(), nn.Linear(self.width, 2))

    def metrics(self, output, batch):
        known = super().metrics(output, batch)
        return {**known, "accuracy": 1 - known["error"]}
'''

OPTIMIZER = """
import torch


class Sign(torch.optim.Optimizer):
    space = {"learning_rate": {"log": [1e-4, 1]}, "power": 1.0}

    def __init__(self, params, lr=0.1, power=1.0):
        super().__init__(params, {"lr": lr, "power": power})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad.sign(), alpha=-group["lr"])
"""

EXPERIMENT = """\
workload: my_model.py:MyModel
grid:
  batch_size: 8..32
  optimizer: [sgd, momentum, my_opt.py:Sign]
  width: [4, 8]
"""


def folder(tmp_path: Path, text: str = EXPERIMENT, name: str = "my.yaml") -> Path:
    """The experiment file, beside the user's Python files."""
    (tmp_path / "my_model.py").write_text(WORKLOAD)
    (tmp_path / "my_opt.py").write_text(OPTIMIZER)
    file = tmp_path / name
    file.write_text(text)
    return file


def own(tmp_path: Path, text: str = EXPERIMENT, *settings: str) -> Experiment:
    """The experiment of that text."""
    return load(folder(tmp_path, text), settings)


def complaint(file: Path, *settings: str) -> tuple[str, str]:
    """What is said of a wrong file, without the folder's name, and the hint: a line each."""
    with pytest.raises(ExperimentError) as raised:
        load(file, settings).studies()
    message, hint = str(raised.value), raised.value.hint or ""
    assert "\n" not in message + hint
    return message.replace(f"{file.parent}/", "").replace(str(file.parent), "HERE"), hint


def ids(experiment: Experiment, rows: int = 4) -> list[str]:
    """Ids of the first trials of every study."""
    return [t.id for study in experiment.studies() for t in study.draw(0, rows)]
