"""A response surface whose searches have a known answer, and their trials as a sweep records them.

Steps to target at batch size B of a point u of the unit cube (the learning rate first, in log
scale, then other metaparameters) are

    T = S(B) exp(w Σ_j (u_j - c_j)² + σ ε),      S(B) = S_min (1 + B_crit/B),

ε ~ N(0, 1) the trial's seed. With s = B/(B + B_crit) the best learning rate is at c_1 = 0.3 + 0.3 s
(in proportion to B, then level), the others at c_j = 0.45 + 0.1 s, and the bowl narrows from w = 12
to 18 at large batches (or further: ``narrowing``). Learning rates more than 0.25 above c_1 diverge
within 20 steps.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.fit.convex import Array
from analysis.fit.knee import sigmoid
from validation import exact
from validation.exact import LogSteps, between

LEAST, CRITICAL = 100.0, 45.0
SIZES = tuple(2**i for i in range(12))
BUDGET = 4.0
"""Budget of a trial in multiples of S(B): less than many points of the space would need."""
RATIO = 1.05
DIVERGES = 0.25
FRESH = 1024
"""Number of searches whose median is the truth."""
KEEP = 4
_EDGE = 0.25
"""The distance from the best point at which bowls of all powers are equally high."""


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Tuned dimensions, and the standard deviation σ of log steps from seed to seed."""

    dimensions: int
    noise: float
    narrowing: float = 0.5
    """By how much of w the bowl narrows from small to large batches."""
    power: float = 2.0
    """Of the distance with which the bowl rises."""


def best_steps(x: Array) -> Array:
    """log S at log batch sizes."""
    return np.asarray(np.log(LEAST) + np.logaddexp(0.0, np.log(CRITICAL) - x))


def excess(
    u: Array, x: Array, *, narrowing: float = 0.5, power: float = 2.0
) -> tuple[Array, NDArray[np.bool_]]:
    """How far log steps at points ``u`` (…, d) lie above the bottom of the bowl at log batch size
    ``x``, and which of them diverge; (…)."""
    s = sigmoid(x - np.log(CRITICAL))
    centre = np.full(u.shape[-1], 0.45) + 0.1 * s
    centre[0] = 0.3 + 0.3 * s
    bowl = _EDGE ** (2.0 - power) * np.square(u - centre).sum(-1) ** (power / 2.0)
    return 12.0 * (1.0 + narrowing * s) * bowl, u[..., 0] > centre[0] + DIVERGES


def points(dimensions: int, count: int, seed: int) -> Array:
    """The first ``count`` points of a scrambled Sobol sequence, (count, d)."""
    from scipy.stats import qmc

    draw = np.random.Generator(np.random.PCG64(seed))
    sobol = qmc.Sobol(dimensions, scramble=True, seed=draw)
    return np.asarray(sobol.random_base2((count - 1).bit_length()))[:count]


def rows(n: int) -> int:
    """Points that hold ``n`` feasible ones but for a chance in a million."""
    return 4 * n


def evaluation_grid(budget: int) -> NDArray[np.int64]:
    """The evaluation grid: 1, each the last times RATIO rounded up, and the budget."""
    steps, step = [], 1
    while step < budget:
        steps.append(step)
        step = max(step + 1, ceil(step * RATIO))
    return np.array([*steps, budget])


@functools.cache
def median_of_searches(
    surface: Surface, n: int, fresh: int = FRESH, multiple: float = BUDGET
) -> LogSteps:
    """log of the median, over ``fresh`` searches, of the best of their first ``n`` feasible trials
    (missing the budget, ``multiple`` S(B), counts as infinite), as a function of log batch size.

    The same points and seeds serve every batch size, so that the curve is smooth: what it is above
    ``best_steps`` is interpolated between every second doubling, and level from 2¹⁰ times the
    tested ones on.
    """
    rng = np.random.default_rng([1, surface.dimensions, n])
    seeds = rng.integers(2**62, size=fresh)
    x = np.log(2.0) * np.arange(-10, len(SIZES) + 11, 2)
    least = np.full((len(x), fresh), np.inf)
    for i, seed in enumerate(seeds):
        u = points(surface.dimensions, rows(n), int(seed))
        luck = surface.noise * rng.normal(size=len(u))
        for j, at in enumerate(x):
            above, diverges = excess(u, at, narrowing=surface.narrowing, power=surface.power)
            least[j, i] = (above + luck)[~diverges][:n].min()
    least[least > np.log(multiple)] = np.inf
    above_best = between(x, np.median(least, axis=1), small=0.0)
    return lambda at: best_steps(at) + above_best(at)


@functools.cache
def truth(
    surface: Surface, n: int, fresh: int = FRESH, multiple: float = BUDGET
) -> dict[str, float]:
    """The five quantities of the median best of ``n``, in natural logs."""
    first, last = np.log(SIZES[0]), np.log(SIZES[-1])
    steps = median_of_searches(surface, n, fresh, multiple)
    return exact.truth(steps, first, last, 0.2).quantities


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The outcome of a trial without dominated stopping, in steps."""

    time: float
    """When the target is passed."""
    diverges: int | None
    """The evaluation that detects its divergence."""


def search(surface: Surface, size: int, n: int, rng: np.random.Generator) -> list[Trial]:
    """The trials of one search at one batch size, up to the ``n``-th feasible one."""
    u = points(surface.dimensions, rows(n), int(rng.integers(2**62)))
    x = float(np.log(size))
    above, diverges = excess(u, np.array(x), narrowing=surface.narrowing, power=surface.power)
    times = np.exp(best_steps(np.array(x)) + above + surface.noise * rng.normal(size=len(u)))
    when = rng.integers(1, 21, len(u))
    last = int(np.flatnonzero(~diverges)[n - 1]) + 1
    return [
        Trial(time=float(times[i]), diverges=int(when[i]) if diverges[i] else None)
        for i in range(last)
    ]


def train(
    trials: Sequence[Trial], budget: int, keep: int | None, order: Sequence[int] | None = None
) -> list[dict[str, object]]:
    """The trials' columns, one after the other in ``order`` (their own unless given).

    A trial is dominated at the first evaluation past X(keep) of the trials before it; ``keep``
    None: it never is.
    """
    grid = evaluation_grid(budget)
    hits: list[float] = []
    out: list[dict[str, object]] = [{} for _ in trials]
    for i in range(len(trials)) if order is None else order:
        trial = trials[i]
        limit = sorted(hits)[keep - 1] if keep is not None and len(hits) >= keep else inf
        hit = int(np.searchsorted(grid, trial.time)) if trial.diverges is None else len(grid)
        ends = float(grid[hit]) if hit < len(grid) else inf
        stop = int(np.searchsorted(grid, limit, side="right"))
        if trial.diverges is not None and trial.diverges <= limit:
            out[i] = _row("INFEASIBLE", "diverged", ran=trial.diverges)
        elif ends <= limit and hit < len(grid):
            hits.append(ends)
            missed = float(grid[hit - 1]) if hit else 0.0
            out[i] = _row("COMPLETE", "target", ran=ends, steps=ends, missed=missed)
        elif stop >= len(grid):
            out[i] = _row("COMPLETE", "budget", ran=budget)
        else:
            out[i] = _row("INCOMPLETE", "dominated", ran=float(grid[stop]))
    return out


def _row(
    status: str, reason: str, *, ran: float, steps: float = np.nan, missed: float = np.nan
) -> dict[str, object]:
    return {
        "status": status,
        "stop_reason": reason,
        "steps_run": ran,
        "steps_to_target": steps,
        "last_miss": missed,
    }


def sweep(
    surface: Surface,
    n: int,
    rng: np.random.Generator,
    name: str,
    *,
    keep: int | None = KEEP,
    shuffled: int | None = None,
    multiple: float = BUDGET,
) -> pd.DataFrame:
    """Rows of the trials table of one search at each of ``SIZES``, the workload called ``name``.

    ``shuffled``: train each study's trials in an order drawn with this seed, not in their own.
    ``multiple``: the budget of a trial in multiples of S(B).
    """
    made = []
    for size in SIZES:
        trials = search(surface, size, n, rng)
        order = None
        if shuffled is not None:
            order = np.random.default_rng([shuffled, size]).permutation(len(trials)).tolist()
        budget = round(multiple * float(np.exp(best_steps(np.log([size]))[0])))
        for index, row in enumerate(train(trials, budget, keep, order)):
            made.append(
                {
                    **row,
                    "study": f"{name}-{size}",
                    "trial": f"{name}-{size}-{index}",
                    "batch_size": size,
                    "index": index,
                    "budget_steps": budget,
                }
            )
    return pd.DataFrame(made).assign(
        experiment="truth",
        workload=name,
        dataset="surface",
        optimizer="sgd",
        schedule="constant",
        role="search",
        metaparameters=json.dumps({}),
        target_metric="validation_error",
        target_value=0.04,
        lower_is_better=True,
        keep=keep,
        evaluation_ratio=RATIO,
    )
