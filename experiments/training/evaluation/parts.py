"""In which order and in which parts the examples of a split are read until a miss is certain."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from experiments.seeds import derive

FIRST = 128
"""Examples that every evaluation reads."""


Parts = tuple[Tensor, ...]
"""Places of the examples of a split, together each of them once. After each part it is asked
whether a miss is certain."""


def split_parts(examples: int) -> Parts:
    """Parts of 128, 128, 256, 256, 512, 512 … of ``examples`` in one random order, the last one
    longer.

    They depend on the split's length alone: where a trial's evaluation ends depends on nothing but
    the trial.
    """
    generator = torch.Generator().manual_seed(derive("evaluation", examples))
    order = torch.randperm(examples, generator=generator)
    sizes: list[int] = []
    for exponent in itertools.count():
        size = FIRST * 2 ** (exponent // 2)
        if sum(sizes) + 2 * size > examples:
            break
        sizes.append(size)
    parts: Parts = order.split([*sizes, examples - sum(sizes)])
    return parts
