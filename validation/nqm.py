"""The noisy quadratic model without sampling: exact expectations and the exact curve.

Zhang et al. 2019, "Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy
Quadratic Model" (arXiv:1907.04164). The loss is L(θ) = ½ Σ h_i θ_i² with h_i = 1/i, i = 1 … 10⁴; a
gradient over B examples is exact but for noise of covariance c_i/B, c_i = h_i; θ(0) ~ N(0, I).
Coordinates do not mix, so the expected loss after t steps is a sum over them, and those of one
eigenvalue are one term: the eigenvalues are rounded down to 100 nodes, of which 84 hold any.

Per eigenvalue a rule moves two numbers linearly, w that is evaluated and u that goes with it,

    (w, u)' = A (w, u) - α·noise·push,    so that    E[(w, u)(w, u)ᵀ] = C∞ + Aᵗ (C₀ - C∞) Aᵗᵀ

with the stationary covariance C∞. The powers A, A², A⁴ … do not depend on B; steps to the goal are
found by descending through them. All of it is float64. ``workloads.quadratic`` is the same model as
a workload to be trained.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIMENSIONS = 10_000
GOAL = 0.01

_DOUBLINGS = 23
"""Steps below 2²³ are searched: at B = 1 the tuned SGD takes 6 million."""

_WOBBLE = 64
"""Momentum may oscillate about the goal: the last step above it among this many further ones
counts."""


class Spectrum(NamedTuple):
    """Distinct eigenvalues and how many coordinates have each, both of shape (K,)."""

    eigenvalues: Array
    counts: Array


class Covariance(NamedTuple):
    """E w², E wu, E u² of each eigenvalue, or how far they are from the stationary ones."""

    ww: Array
    wu: Array
    uu: Array


class System(NamedTuple):
    """A rule at some learning rates and one decay; arrays of shape (…, K)."""

    matrix: tuple[Array, Array, Array, Array]
    """A, row by row."""
    push: tuple[float, float]
    """The effect of a step's noise, in units of -α·noise."""
    stationary: Covariance
    """C∞ in units of α²c/B, where the rule is stable."""
    stable: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An update rule, and the grid that it is tuned over in the paper's published code."""

    system: Callable[[Array, float], System]
    """Makes the system from x = αh, shape (…, K), and the decay."""
    start: tuple[float, float]
    """Start of (w, u) in units of θ(0)."""
    learning_rates: Array
    decays: Array
    """Momentum of heavy ball, decay of the average."""


class Tuned(NamedTuple):
    """The best point of a grid at one batch size."""

    batch_size: int
    steps: int | None
    """The last step whose expected loss is above the goal; ``None``: no point reaches it."""
    learning_rate: float
    decay: float


@functools.cache
def spectrum(dimensions: int = DIMENSIONS) -> Spectrum:
    """1/i for i = 1 … ``dimensions``, each at the largest of 100 log-spaced nodes not above it."""
    nodes = np.logspace(-4, 0, 100)
    eigenvalues = 1.0 / np.arange(1, dimensions + 1)
    # A node and an eigenvalue that are equal but for rounding are equal.
    node = np.searchsorted(nodes * (1 - 1e-12), eigenvalues, side="right") - 1
    counts = np.bincount(node.clip(min=0), minlength=len(nodes))
    return Spectrum(nodes[counts > 0], counts[counts > 0].astype(np.float64))


def heavy_ball(x: Array, momentum: float) -> System:
    """v ← βv - αg, θ ← θ + v: w is θ, u the velocity. β = 0 is SGD. Stable for αh < 2(1+β)."""
    b, unit = momentum, np.ones_like(x)
    stable = x < 2 * (1 + b)
    denominator = np.where(stable, 2 * b + 2 - x, 1.0) * (1 - b)
    return System(
        matrix=(1 - x, b * unit, -x, b * unit),
        push=(1.0, 1.0),
        stationary=Covariance((1 + b) / (x * denominator), 1 / denominator, 2 / denominator),
        stable=np.asarray(stable.all(axis=-1)),
    )


def averaged(x: Array, decay: float) -> System:
    """SGD, evaluated at the average m ← γm + (1-γ)θ of its iterates, m(0) = θ(0): w is m, u is θ.

    The moments of m follow from m' = γm + (1-γ)θ' and θ' = (1-x)θ - α·noise; of m² it ends at
    E θ² · (1-γ)(1+γ(1-x)) / ((1+γ)(1-γ(1-x))).
    """
    g, kept = decay, 1 - x
    stable = x < 2
    theta_square = 1 / np.where(stable, x * (2 - x), 1.0)
    both = (1 - g) / np.where(stable, 1 - g * kept, 1.0)
    return System(
        matrix=(g * np.ones_like(x), (1 - g) * kept, np.zeros_like(x), kept),
        push=(1 - g, 1.0),
        stationary=Covariance(
            theta_square * both * (1 + g * kept) / (1 + g), theta_square * both, theta_square
        ),
        stable=np.asarray(stable.all(axis=-1)),
    )


_WIDE: Array = np.logspace(-8, 1, 100)
_DECAYS: Array = 1 - np.logspace(-5, 0, 20)

RULES: Mapping[str, Rule] = {
    "sgd": Rule(
        system=heavy_ball,
        start=(1.0, 0.0),
        learning_rates=np.logspace(-5, 0.5, 100),
        decays=np.zeros(1),
    ),
    "heavy_ball": Rule(system=heavy_ball, start=(1.0, 0.0), learning_rates=_WIDE, decays=_DECAYS),
    "ema": Rule(system=averaged, start=(1.0, 1.0), learning_rates=_WIDE, decays=_DECAYS),
}


def tune(
    batch_sizes: Sequence[int],
    rule: str = "sgd",
    *,
    learning_rates: Array | None = None,
    decays: Array | None = None,
    goal: float = GOAL,
    dimensions: int = DIMENSIONS,
) -> list[Tuned]:
    """The exact curve: at each batch size the fewest steps over a grid, the paper's unless given.

    Counted is the *last* step still above ``goal``, of learning rates that end below it. It is
    assumed that the loss crosses the goal once, except for oscillations within 64 steps.
    """
    chosen = RULES[rule]
    rates = chosen.learning_rates if learning_rates is None else learning_rates
    best = [Tuned(size, None, float("nan"), float("nan")) for size in batch_sizes]
    h, counts = spectrum(dimensions)
    for decay in map(float, chosen.decays if decays is None else decays):
        stable = rates[chosen.system(rates[:, None] * h, decay).stable]
        system = chosen.system(stable[:, None] * h, decay)
        powers = [system.matrix]
        for _ in range(_DOUBLINGS - 1):
            powers.append(_squared(powers[-1]))
        for i, size in enumerate(batch_sizes):
            noise = stable[:, None] ** 2 * h / size  # c = h
            rest = Covariance(*(part * noise for part in system.stationary))
            weights, most = 0.5 * counts * h, best[i].steps
            fewest = _fewest(powers, rest, chosen.start, weights, goal, most=most)
            if fewest is not None:
                row, steps = fewest
                best[i] = Tuned(size, steps, float(stable[row]), decay)
    return best


def _fewest(
    powers: Sequence[tuple[Array, Array, Array, Array]],
    rest: Covariance,
    start: tuple[float, float],
    weights: Array,
    goal: float,
    most: int | None,
) -> tuple[int, int] | None:
    """The learning rate (its row) with the fewest steps, and those; None if none takes fewer
    than ``most``. Rows that cannot be the best any more are given up on the way."""
    margin = goal - rest.ww @ weights
    rows = np.flatnonzero(margin > 0)
    margin = margin[rows]
    away = _away(Covariance(*(part[rows] for part in rest)), start)
    steps = np.zeros(len(rows), dtype=np.int64)
    for k in reversed(range(len(powers))):
        further = _after(tuple(part[rows] for part in powers[k]), away)
        above = further.ww @ weights > margin
        away = Covariance(
            *(np.where(above[:, None], new, old) for new, old in zip(further, away, strict=True))
        )
        steps = steps + np.where(above, 2**k, 0)
        if not len(rows):
            return None
        bound = steps.min() + 2**k + _WOBBLE
        live = steps < (bound if most is None else min(bound, most))
        rows, margin, steps = rows[live], margin[live], steps[live]
        away = Covariance(*(part[live] for part in away))
    fewest: tuple[int, int] | None = None
    for i in np.argsort(steps, kind="stable"):
        if most is not None and steps[i] >= most:
            break
        matrix = tuple(part[rows[i]] for part in powers[0])
        left = Covariance(*(part[i] for part in away))
        total = int(steps[i]) + _last_above(matrix, left, float(margin[i]), weights)
        if most is None or total < most:
            fewest, most = (int(rows[i]), total), total
    return fewest


def _last_above(matrix: tuple[Array, ...], away: Covariance, margin: float, weights: Array) -> int:
    """How many of the next steps pass until the loss is above the goal for the last time."""
    last = 0
    for step in range(1, _WOBBLE + 1):
        away = _after(matrix, away)
        if away.ww @ weights > margin:
            last = step
    return last


def _away(rest: Covariance, start: tuple[float, float]) -> Covariance:
    """The covariance of θ(0) ~ N(0, 1) less the stationary one."""
    w, u = start
    return Covariance(w * w - rest.ww, w * u - rest.wu, u * u - rest.uu)


def _after(matrix: tuple[Array, ...], away: Covariance) -> Covariance:
    """A C Aᵀ."""
    a, b, c, d = matrix
    ww, wu, uu = away
    first, second = a * ww + b * wu, a * wu + b * uu
    return Covariance(
        a * first + b * second,
        c * first + d * second,
        c * c * ww + 2 * c * d * wu + d * d * uu,
    )


def _squared(
    matrix: tuple[Array, Array, Array, Array],
) -> tuple[Array, Array, Array, Array]:
    a, b, c, d = matrix
    cross, trace = b * c, a + d
    return a * a + cross, b * trace, c * trace, d * d + cross
