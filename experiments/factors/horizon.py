"""How far back in the data an average or the weights reach, an amount such as 1e6 tokens.

- The **half-life** of an average with factor β per step of B examples is the amount of data after
  which a gradient has half its weight: β = 2^(-B / half-life) (Marek et al. 2025,
  arXiv:2507.07101).
- The **time scale** of decoupled weight decay λ at learning rate η is the amount of data over which
  the weights are averaged: λ = B / (η · time scale) (Wang & Aitchison 2024, arXiv:2405.13698).
"""

from __future__ import annotations

import math

from experiments.amounts import Amount
from experiments.errors import ExperimentError
from experiments.search.space import complement, rounded
from results.counts import count


def decay_factor(half_life: Amount, batch_size: int, tokens_per_example: int | None) -> float:
    """β of an average with a half-life, per step of ``batch_size`` examples.

    Raises:
        ExperimentError: β is 0 or 1 to rounding; as ``Amount.in_examples``.
    """
    steps = float(half_life.in_examples(tokens_per_example)) / batch_size
    factor = complement(-math.expm1(-math.log(2) / steps))
    if 0 < factor < 1:
        return factor
    raise ExperimentError(
        f"a half-life of {half_life} makes the factor {factor:.0f} to rounding at batch size "
        f"{batch_size}, {steps:.2g} steps",
        hint="choose a longer half-life, or leave that batch size out"
        if factor == 0
        else "choose a shorter half-life",
    )


def weight_decay(
    time_scale: Amount, batch_size: int, learning_rate: float, tokens_per_example: int | None
) -> float:
    """λ with a time scale at a learning rate.

    Raises:
        ExperimentError: the learning rate is zero; a step would take the weights to zero or
            beyond it; as ``Amount.in_examples``.
    """
    scale = float(time_scale.in_examples(tokens_per_example))
    if scale <= batch_size:
        raise ExperimentError(
            f"a time scale of {time_scale} is {count(math.floor(scale), 'example')}, no more than "
            f"batch size {batch_size}: each step would erase the weights",
            hint="choose a longer time scale, or leave that batch size out",
        )
    if learning_rate <= 0:
        message = f"no weight decay has a time scale at learning rate {learning_rate:g}"
        raise ExperimentError(message, hint="search learning rates over 0")
    return rounded(batch_size / (learning_rate * scale))
