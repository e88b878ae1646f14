"""A user's file of the packaged image networks, narrow, on a few random images."""

FILE = """
import torch
from torch import nn
from workloads import Classification
from workloads.images.networks import RESIDUAL_PLAN, residual_network, vgg11, vgg11_plan
from workloads.resnet8 import CIFAR10ResNet8


class _Images(Classification):
    target = "validation_error < 0.2"
    size = 16

    def data(self):
        g = torch.Generator().manual_seed(0)
        x = torch.randn(64, 3, self.size, self.size, generator=g)
        y = torch.randint(3, (64,), generator=g)
        return {"train": (x[:48], y[:48]), "validation": (x[48:], y[48:])}


class ResNet18(_Images):
    # With ghost batch norm.
    def model(self): return residual_network(18, 4, 3, small=True)
    def layout_plan(self): return RESIDUAL_PLAN


class ResNet50(_Images):
    # As for large images: pooled after the first convolution.
    size = 64
    def model(self): return residual_network(50, 2, 3)
    def layout_plan(self): return RESIDUAL_PLAN


class ResNet8(_Images):
    def model(self): return CIFAR10ResNet8(width=4).model()
    def layout_plan(self): return CIFAR10ResNet8(width=4).layout_plan()


class VGG11(_Images):
    size = 32
    def model(self): return vgg11(2, 3, small=True)
    def layout_plan(self): return vgg11_plan(2, small=True)


class LargeVGG11(_Images):
    # With dropout.
    size = 32
    def model(self): return vgg11(1, 3)
    def layout_plan(self): return vgg11_plan(1)
"""
NAMES = ("ResNet18", "ResNet50", "ResNet8", "VGG11", "LargeVGG11")
