"""A workload in a user's file, which trains in no time, for tests of what is around it."""

TOUCH = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
"""Says that a file was executed, by another one beside it."""
LINEAR = """\
import torch
from batchscale import Classification

class Mine(Classification):
    target = "validation_error < 0.001"

    def data(self):
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        return {split: (x, (x[:, 0] > 0).long()) for split in ("train", "validation")}

    def model(self):
        return torch.nn.Linear(4, 2)
"""
