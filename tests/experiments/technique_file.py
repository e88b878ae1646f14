"""Techniques of a user's file that tests share."""

from __future__ import annotations

USER_FILE = '''
import torch
import batchscale as bs


class Scaled(bs.Technique):
    """Multiply the gradient. And nothing else."""

    stacks = False
    why_not_stacked = "a test says so"
    factor: float = 0.5

    def gradient(self, gradients, weights, state, step):
        factor = self.factor if int(step.number) % 2 else 1.0
        return {name: g * factor for name, g in gradients.items()}


class Everything(bs.Technique):
    """Every hook, in torch alone."""

    strength: float
    kind: str = "plain"

    def model(self, model):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 - self.strength)
        return model

    def batch(self, batch):
        x, *rest = batch
        return (x + self.strength * torch.randn_like(x), *rest)

    def loss(self, loss, model, output, batch):
        decay = sum(p.square().sum() for p in model.parameters())
        return loss * (1 - self.strength) + 0.01 * decay

    def start(self, weights):
        return {"sum": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def gradient(self, gradients, weights, state, step):
        state["sum"] = {name: s + gradients[name] for name, s in state["sum"].items()}
        made = step.number + 1
        return {name: g + 0.01 * state["sum"][name] / made for name, g in gradients.items()}

    def after_step(self, weights, state, step):
        return {name: w.clamp(-0.3, 0.3) for name, w in weights.items()}

    def evaluated(self, weights, state):
        return {name: w * 0.9 for name, w in weights.items()}


class Plain:
    pass


class clip(bs.Technique):
    """Another one of that name."""


class Random(bs.Technique):
    """It draws where nothing may be drawn."""

    def after_step(self, weights, state, step):
        return {name: w + 0.01 * torch.randn_like(w) for name, w in weights.items()}


class Precise(bs.Technique):
    """Without an argument."""

    def model(self, model):
        return model
'''
