"""Gradient noise (Neelakantan et al. 2015, arXiv:1511.06807): normal, and annealed."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.counter_random import normal
from experiments.techniques.base import State, Step, Technique, Tensors
from workloads.generated.counters import DRAW, mixed


class GradientNoise(Technique):
    """Add normal noise of variance ``variance`` / (1 + step)^``decay`` to the gradient.

    The noise is that of the trial's seed, the step and the parameter: it is the same in every
    engine, and goes on where a trial stopped.
    """

    name = "gradient_noise"
    order = 700

    variance: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.55

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Step) -> Tensors:
        key = mixed(step.seed + (step.number + 1) * DRAW)
        deviation = (self.variance / (1 + step.number.to(torch.float64)) ** self.decay) ** 0.5
        # One draw for all parameters: hooks of small models cost what their operations are called.
        first = next(iter(gradients.values()))
        sizes = [gradient.numel() for gradient in gradients.values()]
        noise = normal(key, 0, first.new_empty(sum(sizes))).mul_(deviation.to(first.dtype))
        return {
            name: gradient + part.view(gradient.shape)
            for (name, gradient), part in zip(gradients.items(), noise.split(sizes), strict=True)
        }
