"""How much runs of one configuration differ in their steps to target: MLPerf's many seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.fit.knee import Array
from validation.packaged import trials

PUBLISHED: Mapping[str, float] = {
    "resnet": 1.2,
    "bert": 3.9,
    "stable_diffusion": 11,
    "unet3d": 22,
}
"""Coefficients of variation in per cent, as the facts of the packaged data have them."""

DRAWS = 1000
SEED = 2026


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """Of one benchmark, in per cent: the median over its batch sizes of the sample coefficient of
    variation, its 90 % bootstrap interval, and the least and the most of a batch size."""

    value: float
    low: float
    high: float
    least: float
    most: float
    sizes: int
    runs: int


def noise(benchmark: str) -> RunNoise:
    """The run-to-run noise of a packaged benchmark; runs without steps to target are left out."""
    rows = trials("published")
    rows = rows[(rows["workload"] == benchmark) & rows["steps_to_target"].notna()]
    parts = [part.to_numpy() for _, part in rows.groupby("batch_size")["steps_to_target"]]
    return of(parts)


def of(parts: list[Array]) -> RunNoise:
    """The noise of runs by batch size: steps to target (n,) each, of at least two runs."""
    rng = np.random.default_rng(SEED)
    each = np.array([variation(part) for part in parts])
    again = [variation(part[rng.integers(0, len(part), (DRAWS, len(part)))]) for part in parts]
    low, high = np.quantile(np.median(again, axis=0), (0.05, 0.95))
    return RunNoise(
        value=100 * float(np.median(each)),
        low=100 * float(low),
        high=100 * float(high),
        least=100 * float(each.min()),
        most=100 * float(each.max()),
        sizes=len(parts),
        runs=sum(map(len, parts)),
    )


def variation(steps: Array) -> Array:
    """Sample standard deviation over the mean, along the last axis."""
    return np.asarray(steps.std(-1, ddof=1) / steps.mean(-1))
