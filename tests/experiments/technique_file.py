"""Techniques of a user's file, and a value of each packaged one, that tests share."""

from __future__ import annotations

from typing import Any

PACKAGED: dict[str, Any] = {"clip": 0.05, "ema": 0.9}
"""A value of each packaged technique that tells in a few steps."""

ELSEWHERE = {
    "compress": "tests/experiments/test_compression.py",
    **dict.fromkeys(
        ("mixup", "cutmix", "augment", "rand_augment", "resize", "select"),
        "tests/experiments/test_data_techniques.py",
    ),
    **dict.fromkeys(
        ("accumulate", "attention", "channels_last", "checkpoint", "compile", "fused", "sam"),
        "tests/experiments/test_computation_techniques.py",
    ),
    "distill": "tests/experiments/test_distillation.py",
    "fine_tune": "tests/experiments/test_fine_tune.py",
    "freeze": "tests/experiments/test_freeze.py",
    "lora": "tests/experiments/test_lora.py",
}
"""Other packaged techniques, and the files that test them."""

EXAMPLES: dict[str, Any] = {
    **PACKAGED,
    "dropout": 0.2,
    "gradient_noise": 0.01,
    "label_smoothing": 0.1,
    "lookahead": 3,
    "prune": 0.8,
    "quantize": 8,
    "stochastic_depth": {"rate": 0.2, "branches": ("2",)},
    "swa": 0.05,
    "weight_decay": 0.01,
}
"""A value of each packaged technique with which digits-mlp trains, as experiments write it."""
VARIANTS: list[dict[str, Any]] = [
    {"clip": {"value": 0.001}},
    {"clip": {"norm": 0.05, "value": 0.001}},
    {"weight_decay": {"rate": 0.01, "kind": "coupled"}},
    {"weight_decay": {"rate": 0.01, "of": "all"}},
    {"prune": {"sparsity": 0.5, "by": "random"}},
    {"prune": {"sparsity": 0.9, "by": "gradient"}},
    {"prune": {"sparsity": 0.9, "by": "gradient", "scope": "layer"}},
    {"prune": {"sparsity": 0.8, "until": 0.08, "stages": 6}},
    {"prune": {"sparsity": 0.8, "by": "random", "until": 0.08}},
    {"prune": {"sparsity": 0.5, "structure": "units"}},
    {"prune": {"sparsity": 0.5, "structure": "units", "until": 0.08}},
    {"quantize": {"bits": 4, "activations": 8}},
    {"quantize": {"bits": 4, "when": "after"}},
    {"prune": {"sparsity": 0.9, "until": 0.08}, "ema": 0.9},
    {"prune": {"sparsity": 0.9, "until": 0.08}, "lookahead": 3},
    {"clip": 0.05, "gradient_noise": 0.01, "weight_decay": 0.01, "dropout": 0.2, "swa": 0.05},
]
"""Arguments and compositions besides."""

USER_FILE = '''
import torch
import batchscale as bs


class Scaled(bs.Technique):
    """Multiply the gradient. And nothing else."""

    stacks = False
    why_not_stacked = "a test says so"
    factor: float = 0.5

    def gradient(self, gradients, weights, state, step):
        return {name: g * (self.factor if int(step) % 2 else 1.0) for name, g in gradients.items()}


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
        return {name: g + 0.01 * state["sum"][name] / (step + 1) for name, g in gradients.items()}

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
