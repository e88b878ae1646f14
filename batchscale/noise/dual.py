"""Gradient and noise in the dual norm of an optimizer whose update has a fixed size.

Sign descent moves each element by one size, and its dual norm is the sum of absolute elements: by
so much a step along φ(g) = sign(g) decreases the loss. Of spectral descent (Muon) it is the nuclear
norm of each matrix, and φ(g) its polar factor. For independent gradients a and c of batches with
mean G and Gaussian noise, <a, φ(c)> has a mean of at most ‖G‖*, that of ‖c‖* is at least it, and
a - c is noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from batchscale.noise.gradients import wide
from results.noise_estimate import NoiseEstimate


def _polar(gradient: Tensor) -> Tensor:
    """U Vᵀ of its singular value decomposition. Where that is rounding, it has no direction."""
    if gradient.ndim < 2:
        return gradient.sign()
    u, values, v = torch.linalg.svd(gradient.flatten(1), full_matrices=False)
    rounding = torch.finfo(values.dtype).eps * max(u.shape[0], v.shape[1]) ** 0.5
    return ((u * (values > rounding * values[:1])) @ v).view_as(gradient)


DIRECTIONS: dict[str, Callable[[Tensor], Tensor]] = {"sign": torch.sign, "spectral": _polar}
"""φ, of a parameter: its dual norm is <g, φ(g)>, summed over parameters."""


class Halves:
    """The micro-batches of a step, of all ranks together, in two halves: every other one."""

    def __init__(self, norm: str, group: Any, ranks: int) -> None:
        self.norm = norm
        self._group, self._ranks = group, ranks
        self._rank = dist.get_rank(group) if ranks > 1 else 0
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self._is_first = self._rank % 2 == 0  # the half of the micro-batch that is open
        self._first: dict[str, Tensor] = {}  # the sum of the first half's gradients
        self._weights = [0.0, 0.0]  # the sums of its scale and scale² / examples

    def add(self, name: str, gradient: Tensor) -> None:
        """Take in a parameter's gradient of a micro-batch."""
        if self._is_first:
            own = wide(gradient.detach().to_dense())
            self._first[name] = self._first[name] + own if name in self._first else own.clone()

    def end(self, scale: float, examples: int) -> None:
        """End a micro-batch."""
        if self._is_first:
            self._weights = [self._weights[0] + scale, self._weights[1] + scale**2 / examples]
        self._is_first = not self._is_first

    def terms(
        self, mean: Mapping[str, Tensor], weight: float, noise: float
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Estimates of ‖G‖*² and N², then of what bounds ‖G‖*: ‖c‖*² and <a, φ(c)>.

        Args:
            mean: the step's gradient by parameter, averaged over ranks.
            weight, noise: of all its micro-batches, the sums of scale and of scale² / examples.
        """
        own = torch.tensor(self._weights, dtype=torch.float64)
        first, of_first = self._over_ranks(own.to(next(iter(mean.values())).device)).tolist()
        second = weight - first
        variance = of_first / first**2 + (noise - of_first) / second**2  # of a - c, times 1 / N²
        terms = []
        for name, gradient in mean.items():
            gradient = wide(gradient.detach().to_dense())
            a = self._over_ranks(self._first.get(name, torch.zeros_like(gradient)))
            c = (gradient * self._ranks - a) / second
            terms.append(_terms(a / first, c, DIRECTIONS[self.norm]))
        self.begin()
        summed = torch.stack([each.to(terms[0].device) for each in terms]).sum(0)
        size_a, size_c, apart, along_c, along_a = summed.tolist()
        squared = (size_c * along_c + size_a * along_a) / 2
        bounds = (size_a**2 + size_c**2) / 2, (along_a + along_c) / 2
        return (squared, apart**2 / variance), bounds

    def _over_ranks(self, tensor: Tensor) -> Tensor:
        if self._ranks > 1:
            dist.all_reduce(tensor, group=self._group)
        return tensor


def _terms(a: Tensor, c: Tensor, direction: Callable[[Tensor], Tensor]) -> Tensor:
    """‖a‖*, ‖c‖*, ‖a - c‖*, <a, φ(c)> and <c, φ(a)> of a parameter, summed in float64."""
    of_a, of_c = direction(a), direction(c)
    pairs = (a, of_a), (c, of_c), (a - c, direction(a - c)), (a, of_c), (c, of_a)
    return torch.stack([(x.double() * along).sum() for x, along in pairs])


def bounded(
    estimate: NoiseEstimate, norm: str, bounds: Sequence[tuple[float, float]], tokens: int
) -> NoiseEstimate:
    """An estimate with its norm, and the bounds by those of ‖G‖* in each step."""
    above, along = (sum(each) / len(bounds) for each in zip(*bounds, strict=True))
    noise = estimate.covariance_trace * tokens
    high = noise / along**2 if along > 0 else None
    return replace(estimate, norm=norm, bounds=(noise / above if above > 0 else 0.0, high))
