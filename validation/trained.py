"""Trials of a search of the surface as a sweep would record them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from validation.surface import (
    BUDGET,
    RATIO,
    SIZES,
    Surface,
    best_steps,
    excess,
    looks,
    points,
    rows,
)

KEEP = 4


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What would become of a trial that nothing dominates, in steps."""

    time: float
    """When the target is passed."""
    diverges: int | None
    """The look at which it is found to have diverged."""


def search(surface: Surface, size: int, n: int, rng: np.random.Generator) -> list[Trial]:
    """The trials of one search at one batch size, up to the ``n``-th feasible one."""
    u = points(surface.dimensions, rows(n), int(rng.integers(2**62)))
    x = float(np.log(size))
    above, diverges = excess(u, np.array(x))
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

    A trial is dominated at the first look past X(keep) of what is known by then; ``keep`` None: it
    never is.
    """
    grid = looks(budget)
    known: list[float] = []
    out: list[dict[str, object]] = [{} for _ in trials]
    for i in range(len(trials)) if order is None else order:
        trial = trials[i]
        limit = sorted(known)[keep - 1] if keep is not None and len(known) >= keep else inf
        hit = int(np.searchsorted(grid, trial.time)) if trial.diverges is None else len(grid)
        ends = float(grid[hit]) if hit < len(grid) else inf
        stop = int(np.searchsorted(grid, limit, side="right"))
        if trial.diverges is not None and trial.diverges <= limit:
            out[i] = _row("INFEASIBLE", "diverged", ran=trial.diverges)
        elif ends <= limit and hit < len(grid):
            known.append(ends)
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
) -> pd.DataFrame:
    """Rows of the trials table of one search at each of ``SIZES``, the workload called ``name``.

    ``shuffled``: train each study's trials in an order drawn with this seed, not in their own.
    """
    found = []
    for size in SIZES:
        trials = search(surface, size, n, rng)
        order = None
        if shuffled is not None:
            order = np.random.default_rng([shuffled, size]).permutation(len(trials)).tolist()
        budget = round(BUDGET * float(np.exp(best_steps(np.log([size]))[0])))
        for index, row in enumerate(train(trials, budget, keep, order)):
            found.append(
                {
                    **row,
                    "study": f"{name}-{size}",
                    "trial": f"{name}-{size}-{index}",
                    "batch_size": size,
                    "index": index,
                    "budget_steps": budget,
                }
            )
    return pd.DataFrame(found).assign(
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
