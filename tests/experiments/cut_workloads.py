"""A user's file of small workloads that say how their models are cut: dropout and batch norm inside
of what is cut, a CNN, and a part that cannot be cut."""

FILE = """
import torch
from torch import nn
from tests.problems import Tiny
from workloads import LayoutPlan


class Cut(Tiny):
    # Dropout and batch norm act on the features of which each rank has its share. (A bias before
    # the norm would have a gradient of rounding errors alone, which Adam makes as large as others.)
    width: int = 8

    def model(self):
        return nn.Sequential(
            nn.Linear(6, self.width, bias=False), nn.BatchNorm1d(self.width),
            nn.Dropout(0.3), nn.ReLU(), nn.Linear(self.width, 3),
        )

    def layout_plan(self):
        return LayoutPlan(
            columns={"0": 1}, channels=("1",), rows=("4",), multiples={"width": self.width}
        )


class Gain(nn.Module):
    # A parameter without dimensions.
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x): return x * self.gain


class Image(Tiny):
    # Convolutions and their batch norm are whole; the dense layers are cut.
    def transform(self, batch, *, training):
        x, *rest = batch
        return x.view(-1, 1, 2, 3), *rest

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(24, 10), nn.Dropout(0.2), nn.Tanh(), nn.Linear(10, 3), Gain(),
        )

    def layout_plan(self):
        return LayoutPlan(columns={"4": 1}, rows=("7",), multiples={"hidden features": 10})


class Square(Tiny):
    # Square matrices whose gradients have full rank: SOAP's first bases follow rounding errors in
    # the null space of a gradient.
    def model(self): return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    def layout_plan(self): return LayoutPlan(columns={"0": 1}, rows=("2",))

    def loss(self, output, batch):
        return (output - nn.functional.one_hot(batch[1], 6)).square().sum(1)


class Silent(Tiny):
    pass
"""
