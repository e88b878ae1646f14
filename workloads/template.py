"""The files that `batchscale new` writes: a workload that runs unchanged, and an experiment."""

from __future__ import annotations

import keyword
import re
from pathlib import PurePath

_WORKLOAD = '''\
"""Your workload. Check that it keeps the contract: batchscale check @FILE@:@CLASS@"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from batchscale import Classification


class @CLASS@(Classification):  # brings cross entropy and the metric "error"
    target = "validation_error < 0.05"
    width: int = 64  # an annotated field: an experiment may sweep it

    def data(self):
        pixels, labels = load_digits(return_X_y=True)  # yours: (x, y) tensors or Datasets
        x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        train, validation = order[:-500], order[-500:]
        return {"train": (x[train], y[train]), "validation": (x[validation], y[validation])}

    def model(self):
        return nn.Sequential(nn.Linear(64, self.width), nn.ReLU(), nn.Linear(self.width, 10))
'''

_EXPERIMENT = """\
# batchscale sweep @STEM@.yaml
workload: @FILE@:@CLASS@
grid:                                    # one study for each combination
  batch_size: 8..512                     # doubling; or a list; `full` = the training set
  optimizer: [sgd, momentum]
search:                                  # tuned afresh in every study
  learning_rate: {log: [1e-3, 10]}
trials: 16                               # feasible points a study
budget: 50 epochs + 500 steps            # for each trial
"""


def template(name: str) -> tuple[str, str]:
    """A workload file and an experiment file to start from.

    Args:
        name: the name of the workload's file, ``my_model.py`` (a folder before it and a
            missing ``.py`` do not matter). Its class is called ``MyModel`` then.

    Returns:
        The text of the Python file, and that of the YAML file beside it.
    """
    stem = PurePath(name).name.removesuffix(".py") or "my_model"
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", stem) if part]
    cls = "".join(part[0].upper() + part[1:] for part in parts)
    if not cls.isidentifier() or keyword.iskeyword(cls):
        cls = f"My{cls}" if f"My{cls}".isidentifier() else "MyModel"

    def fill(text: str) -> str:
        return text.replace("@FILE@", f"{stem}.py").replace("@CLASS@", cls).replace("@STEM@", stem)

    return fill(_WORKLOAD), fill(_EXPERIMENT)
