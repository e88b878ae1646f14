"""Intervals of the noise scale, by simulations of a problem whose answer is known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.training.evaluation_grid import evaluation_steps
from results.noise_estimate import FEWEST, estimate
from tests.batchscale.test_noise_scale import DIMENSION, DISTANCE, NOISE


def simulated(seed: int, distances: Tensor, parts: int = 4, size: int = 4) -> Any:
    """Rows of steps whose expected gradients are ``distances`` (steps x DIMENSION)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(distances), parts, size)
    x = torch.randn(*shape, DIMENSION, generator=generator, dtype=torch.float64)
    y = NOISE * torch.randn(*shape, 1, generator=generator, dtype=torch.float64)
    gradients = x * ((x * distances[:, None, None]).sum(-1, keepdim=True) - y)
    means = gradients.mean(2)
    of_small, of_big = means.square().sum(-1).mean(1), means.mean(1).square().sum(-1)
    big = parts * size
    squared = (big * of_big - size * of_small) / (big - size)
    traces = (of_small - of_big) / (1 / size - 1 / big)
    return list(zip([1] * len(distances), squared.tolist(), traces.tolist(), strict=True))


def recorded(rows: Any) -> Any:
    """The same as sums, of more and more steps each, as evaluations record them."""
    steps = evaluation_steps(1.05, len(rows))
    parts = [list(zip(*rows[low:high], strict=True)) for low, high in pairwise([0, *steps])]
    return [(sum(n), sum(g), sum(t)) for n, g, t in parts]


def covered(
    distances: Tensor, parts: int = 4, runs: int = 500, *, summed: bool = False
) -> tuple[float, float]:
    """Shares of simulations whose interval holds the truth, and which say that blocks are alike."""
    squared = distances.square().sum(1)
    traces = (DIMENSION + 1) * squared + DIMENSION * NOISE**2
    truth = float(traces.mean() / squared.mean())
    rows = (simulated(seed, distances, parts=parts) for seed in range(runs))
    given = [estimate(recorded(each) if summed else each) for each in rows]
    holds = [
        (e.low is None or e.low <= truth) and (e.high is None or truth <= e.high) for e in given
    ]
    alike = [any("deviate alike" in note for note in e.notes) for e in given]
    return sum(holds) / runs, sum(alike) / runs


@pytest.mark.parametrize("steps", [20, 50, 200])
def test_an_interval_at_90_percent_holds_the_truth_in_so_many_cases(steps: int) -> None:
    share, alike = covered(DISTANCE.expand(steps, -1))
    assert 0.87 <= share <= 0.94
    assert alike < 0.06


@pytest.mark.parametrize("steps", [60, 200])
def test_so_does_that_of_recorded_sums(steps: int) -> None:
    assert 0.86 <= covered(DISTANCE.expand(steps, -1), summed=True)[0] <= 0.94


def test_few_blocks_have_no_interval() -> None:
    rows = [(10, 10.0, 80.0)] * (FEWEST - 1)
    given = estimate(rows)
    assert (given.noise_scale, given.low, given.steps) == (8, None, 10 * len(rows))
    assert given.notes == (f"no interval: fewer blocks of steps than {FEWEST}",)
    assert estimate([*rows, rows[0]]).low == pytest.approx(8)


def test_an_interval_is_of_the_windows_means_where_the_truth_moves() -> None:
    """From 8 examples to 50: of a few micro-batches within the noise, of many not."""
    distances = DISTANCE * torch.linspace(1.5, 0.2, 100, dtype=torch.float64)[:, None]
    assert covered(distances)[0] >= 0.9
    share, alike = covered(distances, parts=64, runs=100)
    assert share >= 0.9
    assert alike > 0.8


def test_where_no_gradient_is_left_the_interval_has_no_upper_end() -> None:
    at_optimum = torch.zeros(200, DIMENSION, dtype=torch.float64)
    given = [estimate(simulated(seed, at_optimum)) for seed in range(100)]
    assert sum(each.high is None for each in given) >= 90
    negative = [each for each in given if each.gradient_norm_squared < 0]
    assert 30 < len(negative) < 70
    for each in negative:
        assert each.noise_scale < 0
        assert each.notes[0] == "the mean of |G|² is not positive: the noise scale is not known"
        assert "open] examples" in str(each)
    lower = [each.low for each in given if each.low is not None]
    assert len(lower) > 90
    assert min(lower) > 10


def test_a_gradient_that_is_negative_beyond_chance_is_said() -> None:
    given = estimate([(1, -1.0 - 0.01 * (i % 3), 2.0) for i in range(40)])
    assert (given.low, given.high) == (None, None)
    assert given.notes[-1].startswith("|G|² is below zero beyond chance: examples are not indep")
    assert "zeroed or clipped" in given.notes[-1]


def test_few_steps_have_no_interval() -> None:
    given = estimate([(1, 1.0, 8.0)] * 19)
    assert (given.noise_scale, given.low, given.high) == (8, None, None)
    assert given.notes == ("no interval: fewer steps than 20",)
    assert str(estimate([(1, 1.0, 8.0)] * 40, skipped=2)) == (
        "noise scale 8 [8, 8] examples (|G|² 1, tr Σ 8); "
        "left out, since a gradient was not finite: 2"
    )
