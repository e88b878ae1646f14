"""From unbiased terms of single steps to the noise scale of a window of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

BLOCKS = 20
FEWEST = 8
"""Blocks of which an interval is given: recorded sums are not divided further."""
ALIKE = 1.8
"""Times 1/sqrt(blocks), a correlation of neighbouring blocks that independent ones exceed in 1 case
of 100."""

Row = tuple[int, float, float]
"""A number of successive steps, and the sums over them of unbiased estimates of |G|² and tr(Σ)."""


@dataclass(frozen=True, kw_only=True)
class NoiseEstimate:
    """The noise scale ``tr(Σ) / |G|²`` of a window of steps: *not* the critical batch size.

    An end of the interval that is None is open: the steps do not bound the noise scale there.
    """

    noise_scale: float
    """In ``unit``; the ratio of the two means below. Negative where that of ``|G|²`` is."""
    low: float | None
    high: float | None
    """The interval at 90 %: Fieller's for a ratio of means, by 20 blocks of steps."""
    gradient_norm_squared: float
    """``|G|²``: the mean of unbiased estimates, so it may be negative."""
    covariance_trace: float
    """tr(Σ): that of the covariance of the gradient of a single example."""
    steps: int
    unit: str = "examples"
    notes: tuple[str, ...] = ()
    """What to know before it is used, a sentence each."""
    norm: str = "euclidean"
    """``sign`` or ``spectral``: ``|G|²`` and tr(Σ) above are the squared dual norm ``‖G‖*²`` and N²
    in its place, the batch size times the mean ``‖noise‖*²`` of a batch."""
    bounds: tuple[float, float | None] | None = None
    """Of a dual norm: within them lies N² / ``‖G‖*²`` whatever the gradient, but for the error of
    sampling. ``noise_scale`` is about their geometric mean."""

    def __str__(self) -> str:
        of_g, of_noise = ("|G|²", "tr Σ") if self.bounds is None else ("‖G‖*²", "N²")
        terms = f"{of_g} {self.gradient_norm_squared:.3g}, {of_noise} {self.covariance_trace:.3g}"
        low, high = _ends(self.low, self.high)
        text = f"noise scale {self.noise_scale:.3g} [{low}, {high}] {self.unit} ({terms})"
        if self.bounds is not None:
            least, most = _ends(*self.bounds)
            text += f"; norm {self.norm}: from {least} to {most}, whatever the gradient"
        return "; ".join((text, *self.notes))


def _ends(*values: float | None) -> tuple[str, ...]:
    return tuple("open" if value is None else f"{value:.3g}" for value in values)


def estimate(
    rows: Sequence[Row], *, tokens_per_example: int | None = None, skipped: int = 0
) -> NoiseEstimate:
    """The noise scale of a window.

    Args:
        rows: of each step, or of some steps each, in order.
        tokens_per_example: the noise scale and its interval are multiplied by it.
        skipped: how many steps were left out, to be said.
    """
    numbers, gradients, traces = zip(*rows, strict=True)
    steps = sum(numbers)
    gradient, trace = math.fsum(gradients) / steps, math.fsum(traces) / steps
    low, high, notes = _interval(rows, steps, gradient, trace)
    if skipped:
        notes.append(f"left out, since a gradient was not finite: {skipped}")
    times = tokens_per_example or 1
    return NoiseEstimate(
        noise_scale=times * trace / gradient if gradient else math.inf,
        low=None if low is None else low * times,
        high=None if high is None else high * times,
        gradient_norm_squared=gradient,
        covariance_trace=trace,
        steps=steps,
        unit="examples" if tokens_per_example is None else "tokens",
        notes=tuple(notes),
    )


def _interval(
    rows: Sequence[Row], steps: int, gradient: float, trace: float
) -> tuple[float | None, float | None, list[str]]:
    """Fieller's interval (1954) of a ratio of means: all B for which the sum of trace - B gradient
    over blocks is compatible with zero. It is open where the denominator may be zero, which an
    interval from a standard error of the ratio would not say."""
    negative = ["the mean of |G|² is not positive: the noise scale is not known"]
    notes = negative if gradient <= 0 else []
    if steps < BLOCKS:
        return None, None, [*notes, f"no interval: fewer steps than {BLOCKS}"]
    blocks: dict[int, list[Row]] = {}
    done = 0
    for row in rows:
        blocks.setdefault(done * BLOCKS // steps, []).append(row)
        done += row[0]
    count = len(blocks)
    if count < FEWEST:
        return None, None, [*notes, f"no interval: fewer blocks of steps than {FEWEST}"]
    columns = [list(zip(*of_block, strict=True)) for of_block in blocks.values()]
    sums = [(sum(n), math.fsum(g), math.fsum(t)) for n, g, t in columns]
    x = [of_block - number * trace for number, _, of_block in sums]
    y = [of_block - number * gradient for number, of_block, _ in sums]
    notes = [*notes, *_alike([a * gradient - b * trace for a, b in zip(x, y, strict=True)])]

    scale = _t_quantile(count - 1) ** 2 * count / (count - 1) / steps**2
    a = gradient**2 - scale * math.fsum(each**2 for each in y)
    b = gradient * trace - scale * math.fsum(p * q for p, q in zip(x, y, strict=True))
    c = trace**2 - scale * math.fsum(each**2 for each in x)
    if a > 0 and gradient > 0:
        root = math.sqrt(max(b**2 - a * c, 0.0))
        return (b - root) / a, (b + root) / a, notes
    if a > 0:
        why = "examples are not independent, or the gradient was zeroed or clipped before its step"
        notes.append(f"|G|² is below zero beyond chance: {why} was measured")
        return None, None, notes
    notes.append("|G|² may be zero as far as these steps say: the noise scale has no upper bound")
    if c <= 0 or a == 0:
        return None, None, notes
    # The roots lie on both sides of zero. What is below the negative one has a negative |G|².
    return (b - math.sqrt(b**2 - a * c)) / a, None, notes


def _alike(blocks: Sequence[float]) -> list[str]:
    """A note where neighbouring blocks deviate alike: they are then not independent."""
    total = math.fsum(each**2 for each in blocks)
    product = math.fsum(a * b for a, b in pairwise(blocks))
    if total == 0 or product / total <= ALIKE / math.sqrt(len(blocks)):
        return []
    return [
        "neighbouring blocks of steps deviate alike: the noise scale changes within the window, or "
        "steps are correlated for longer than a block; the interval is of the window's mean"
    ]


def _t_quantile(freedom: int) -> float:
    """Student's t at 95 %, of an interval at 90 %, to 1e-3 from ``FEWEST`` blocks on (Abramowitz &
    Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(0.95)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
