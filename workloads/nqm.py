"""The noisy quadratic model without sampling: exact expectations and the exact curve.

Zhang et al. 2019, "Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy
Quadratic Model" (arXiv:1907.04164). The loss is L(θ) = ½ Σ h_i θ_i² with h_i = 1/i, i = 1 … 10⁴; a
gradient over B examples is exact but for noise of covariance c_i/B, c_i = h_i; θ(0) ~ N(0, I).
Coordinates do not mix, so the expected loss after t steps is a sum over them, and those of one
eigenvalue are one term: the eigenvalues are rounded down to 100 nodes, of which 84 hold any.

Heavy ball is v ← βv + g, θ ← θ - αv; β = 0 is SGD. With the preconditioner diag(h^p), α h^-p takes
the place of α. All of it is float64, vectorized over learning rates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIMENSIONS = 10_000
GOAL = 0.01
SGD_LEARNING_RATES: Array = np.logspace(-5, 0.5, 100)
HEAVY_BALL_LEARNING_RATES: Array = np.logspace(-8, 1, 100)
MOMENTA: Array = 1 - np.logspace(-5, 0, 20)

_DOUBLINGS = 23
"""Steps below 2²³ are looked for: at B = 1 the tuned SGD takes 6 million."""

_WOBBLE = 64


class Spectrum(NamedTuple):
    """Distinct eigenvalues and how many coordinates have each, both of shape (K,)."""

    eigenvalues: Array
    counts: Array


class Tuned(NamedTuple):
    """The best point of a grid at one batch size."""

    batch_size: int
    steps: int | None
    """The last step whose expected loss is above the goal; ``None``: no point reaches it."""
    learning_rate: float
    momentum: float


@functools.cache
def spectrum(dimensions: int = DIMENSIONS) -> Spectrum:
    """1/i for i = 1 … ``dimensions``, each at the largest of 100 log-spaced nodes not above it."""
    nodes = np.logspace(-4, 0, 100)
    eigenvalues = 1.0 / np.arange(1, dimensions + 1)
    # A node and an eigenvalue that are equal but for rounding are equal.
    node = np.searchsorted(nodes * (1 - 1e-12), eigenvalues, side="right") - 1
    counts = np.bincount(node.clip(min=0), minlength=len(nodes))
    return Spectrum(nodes[counts > 0], counts[counts > 0].astype(np.float64))


def rates(learning_rates: Array | float, eigenvalues: Array, preconditioner: float = 0.0) -> Array:
    """The learning rate of each eigenvalue, α h^-p: shape (…, K)."""
    return np.asarray(learning_rates)[..., None] * eigenvalues**-preconditioner


def transition(rate: Array, momentum: float, eigenvalues: Array) -> Array:
    """How (E θ², E v², E θv) moves in one step but for its noise, which adds (α²c/B)·(1, 1, 1).

    The velocity here is the step itself: v' = βv - αg, θ' = θ + v'. Shape (…, K, 3, 3).
    """
    x = rate * eigenvalues
    b, one = momentum, np.ones_like(x)
    rows = [
        [(1 - x) ** 2, b**2 * one, 2 * (1 - x) * b],
        [x**2, b**2 * one, -2 * x * b],
        [-(1 - x) * x, b**2 * one, (1 - 2 * x) * b],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def stationary(rate: Array, momentum: float, batch_size: float, eigenvalues: Array) -> Array:
    """Where (E θ², E v², E θv) ends if the learning rate is stable: shape (…, K, 3)."""
    x, b = rate * eigenvalues, momentum
    share = rate**2 * eigenvalues / batch_size / ((2 * b + 2 - x) * (1 - b))  # c = h
    return np.stack([(1 + b) * share / x, 2 * share, share], axis=-1)


def stable(rate: Array, momentum: float, eigenvalues: Array) -> NDArray[np.bool_]:
    """Whether no coordinate grows, αh < 2(1+β) for each: shape (…,)."""
    return np.asarray((rate * eigenvalues < 2 * (1 + momentum)).all(axis=-1))


def expected_loss(
    steps: Sequence[int] | NDArray[np.int64],
    *,
    learning_rate: float,
    batch_size: float,
    momentum: float = 0.0,
    preconditioner: float = 0.0,
    dimensions: int = DIMENSIONS,
) -> Array:
    """E L(θ(t)) at each of ``steps``: shape (len(steps),). SGD unless a momentum is given."""
    h, counts = spectrum(dimensions)
    rate = rates(learning_rate, h, preconditioner)
    matrix = transition(rate, momentum, h)
    end = np.linalg.solve(
        np.eye(3) - matrix, (rate**2 * h / batch_size)[:, None, None] * np.ones((3, 1))
    )[..., 0]
    start = np.array([1.0, 0.0, 0.0]) - end
    moved = (np.linalg.matrix_power(matrix, int(t)) @ start[..., None] for t in steps)
    return np.array([0.5 * (counts * h) @ (end + away[..., 0])[:, 0] for away in moved])


def tune(
    batch_sizes: Sequence[int],
    *,
    learning_rates: Array = SGD_LEARNING_RATES,
    momenta: Sequence[float] | Array = (0.0,),
    preconditioner: float = 0.0,
    goal: float = GOAL,
    dimensions: int = DIMENSIONS,
) -> list[Tuned]:
    """The exact curve: at each batch size the fewest steps over a grid.

    The default grid is SGD's of the paper; ``HEAVY_BALL_LEARNING_RATES`` with ``MOMENTA`` is that
    of heavy ball. Where the expected loss falls through the goal is found by doubling: the powers
    M, M², M⁴ … do not depend on B and are shared. Heavy ball may wobble about the goal: of the next
    64 steps the last above it counts.
    """
    best = [Tuned(b, None, float("nan"), float("nan")) for b in batch_sizes]
    for momentum in map(float, momenta):
        for i, found in enumerate(
            _fewest(batch_sizes, learning_rates, momentum, preconditioner, goal, dimensions)
        ):
            steps = best[i].steps
            if found.steps is not None and (steps is None or found.steps < steps):
                best[i] = found
    return best


def _fewest(
    batch_sizes: Sequence[int],
    learning_rates: Array,
    momentum: float,
    preconditioner: float,
    goal: float,
    dimensions: int,
) -> list[Tuned]:
    h, counts = spectrum(dimensions)
    weights = 0.5 * counts * h
    rate = rates(learning_rates, h, preconditioner)
    tried = stable(rate, momentum, h)
    rate, tried_rates = rate[tried], learning_rates[tried]
    powers = [transition(rate, momentum, h)]
    for _ in range(_DOUBLINGS - 1):
        powers.append(powers[-1] @ powers[-1])
    tuned = []
    for batch_size in batch_sizes:
        end = stationary(rate, momentum, batch_size, h)
        margin = goal - end[..., 0] @ weights
        reached = np.flatnonzero(margin > 0)
        away = np.array([1.0, 0.0, 0.0]) - end[reached]
        steps = np.zeros(len(reached), dtype=np.int64)
        for k in reversed(range(_DOUBLINGS)):
            further = np.einsum("rkij,rkj->rki", powers[k][reached], away)
            above = further[..., 0] @ weights > margin[reached]
            away[above] = further[above]
            steps[above] += 2**k
        final = np.zeros(len(reached), dtype=bool)
        while len(reached) and not final[i := int(steps.argmin())]:
            steps[i] += _last_above(powers[0][reached[i]], away[i], margin[reached[i]], weights)
            final[i] = True
        if len(reached):
            tuned.append(Tuned(batch_size, int(steps[i]), float(tried_rates[reached[i]]), momentum))
        else:
            tuned.append(Tuned(batch_size, None, float("nan"), momentum))
    return tuned


def _last_above(matrix: Array, away: Array, margin: float, weights: Array) -> int:
    """How many of the next steps pass until the loss is above the goal for the last time."""
    last = 0
    for step in range(1, _WOBBLE + 1):
        away = np.einsum("kij,kj->ki", matrix, away)
        if away[:, 0] @ weights > margin:
            last = step
    return last
