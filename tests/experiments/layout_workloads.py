"""A user's file of small workloads that can be cut into pipeline stages."""

FILE = """
import torch
from torch import nn
from tests.problems import Tiny
from workloads import LayoutPlan


class Deep(Tiny):
    norm = nn.BatchNorm1d
    # Without a bias before the batch norm: its gradient is rounding, which Adam makes a step of.
    def layout_plan(self): return LayoutPlan(pipeline=("*",))

    def model(self):
        return nn.Sequential(
            nn.Linear(6, 8, bias=False), self.norm(8), nn.Tanh(), nn.Dropout(0.2),
            nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Dropout(0.3),
            nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3),
        )


class Layered(Deep):
    norm = nn.LayerNorm


class Partly(Tiny):
    # The third layer is never used.
    def model(self):
        return nn.ModuleDict({
            "first": nn.Linear(6, 8), "second": nn.Linear(8, 8), "third": nn.Linear(8, 8),
            "last": nn.Linear(8, 3),
        })

    def forward(self, model, batch):
        x = torch.tanh(model["first"](batch[0]))
        return model["last"](torch.tanh(model["second"](x)))
"""
