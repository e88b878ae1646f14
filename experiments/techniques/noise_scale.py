"""The gradient noise scale of training (McCandlish et al. 2018, arXiv:1812.06162), measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.techniques.base import Preparation, State, Step, Technique, Tensors
from workloads import Batch
from workloads.ghost import has_batch_norm

_RECORDED = ("noise_steps", "noise_gradient", "noise_variance")
"""Sums over the measured steps: 1, the estimates of |G|², and of tr(Σ)."""
_MIXES = "it mixes examples of a batch, whose halves are then not independent"


class NoiseScale(Technique):
    """Measure the gradient noise scale in every ``every``-th step, by half of the batch.

    Training is what it is without it. With g₁ and g₂ the gradients of two halves of a examples and
    b = B - a others, tr(Σ) is estimated by |g₁ - g₂|² a b/B, and |G|² by g₁·g₂, each without a
    bias; evaluations record the sums of both so far. Where examples are drawn from N of a training
    set without replacement, tr(Σ)/N is added to the latter: halves that share no example deviate
    against each other. A batch of a single example is not measured.
    """

    name = "noise_scale"
    example = "16"
    excludes: ClassVar[Mapping[str, str]] = {
        "mixup": _MIXES,
        "cutmix": _MIXES,
        "compress": "the gradient of half of a batch would pass through what it keeps",
    }

    every: Annotated[int, Field(ge=1)] = 16
    _of: ClassVar[float] = torch.inf
    """Examples that batches are drawn from without replacement."""

    def prepare(self, context: Preparation) -> Technique:
        fixed = context.fixed_examples
        return self.with_arguments({"_of": len(context.splits["train"]) if fixed else torch.inf})

    def check(self, workload: object, model: nn.Module, batch: Batch) -> None:
        if has_batch_norm(model):
            raise ExperimentError(
                "technique noise_scale needs a loss of single examples, and batch normalization "
                "makes each depend on the others",
                hint="a model with another normalization",
            )

    def is_due(self, step: int) -> bool:
        return step % self.every == 0

    def start(self, weights: Tensors) -> State:
        zero = next(iter(weights.values())).new_zeros((), dtype=torch.float64)
        return {name: zero.clone() for name in _RECORDED}

    def observe(
        self, half: Tensors, whole: Tensors, sizes: tuple[int, int], state: State, step: Step
    ) -> None:
        due = step.number % self.every == 0
        gradient, variance = self._terms(half, whole, sizes)
        terms = torch.ones_like(gradient), gradient, variance
        for name, term in zip(_RECORDED, terms, strict=True):
            state[name] = state[name] + torch.where(due, term, 0.0)

    def _terms(
        self, half: Tensors, whole: Tensors, sizes: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Unbiased estimates of |G|² and tr(Σ), float64: with d = g₁ - g the gradient g₂ is
        g - d a/b, so that g₁·g₂ = |g|² + (1 - a/b) g·d - |d|² a/b."""
        part, size = sizes
        share = part / (size - part)
        apart = _square({name: g - whole[name] for name, g in half.items()})
        square = _square(whole)
        inner = square - share * apart
        if share != 1:
            inner = inner + (1 - share) * (_square(half) - square - apart) / 2
        variance = apart * (size * share)
        return inner + variance / self._of, variance

    def recorded(self, state: State) -> Tensors:
        return {name: cast(Tensor, state[name]) for name in _RECORDED}


def _square(gradient: Tensors) -> Tensor:
    """|g|² of all parameters together."""
    norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradient.values()]
    return torch.stack(norms).square().sum()
