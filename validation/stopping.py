"""Sweeps that stop themselves: whether intervals hold the truth although they end a search.

A sweep is analysed when it has each of ``STAGES`` feasible trials at each batch size, the rounds of
``experiments.scheduling.rounds``, and ends at the first at which the interval of its critical batch
size is narrow enough. Trials are dominated by those before them alone, so that a part of a search
is what a sweep would have trained until then. The truth is that of the median search of as many
trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import curves
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes, regimes_of
from analysis.widths.width import width
from validation import surface as surfaces
from validation.harness import Counts, groups
from validation.page import share, table
from validation.surface import Surface, sweep

STAGES = (16, 32, 64)
QUANTITY = "critical_batch_size"


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """A surface, and the factor at which its sweeps stop."""

    surface: Surface
    factor: float


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """What a sweep knows when it ends."""

    trials: int
    """Of each batch size."""
    interval: Interval
    early: bool
    """Whether the width ended it."""


def truth(cell: Stopping) -> dict[int, float]:
    """The critical batch size of the median search, by its trials."""
    return {n: float(np.exp(surfaces.truth(cell.surface, n)[QUANTITY])) for n in STAGES}


def simulate(
    cell: Stopping, true: Any, rng: np.random.Generator, sweeps: int
) -> list[tuple[tuple[Stopping, pd.DataFrame], Any]]:
    """The trials of some whole searches."""
    made = (sweep(cell.surface, STAGES[-1], rng, f"{i:04d}") for i in range(sweeps))
    return [((cell, trials), true) for trials in made]


def until(trials: pd.DataFrame, feasible: int) -> pd.DataFrame:
    """The rows of each study up to the feasible one of this number."""
    counts = trials["status"].ne("INFEASIBLE").astype(int)
    before = counts.groupby(trials["study"]).cumsum() - counts
    return trials[before < feasible]


def ended(made: tuple[Stopping, pd.DataFrame]) -> Stopped:
    """A sweep where the rule ends it."""
    cell, trials = made
    names = ["study", "workload", "dataset", "optimizer", "schedule", "batch_size"]
    studies = trials[names].drop_duplicates()
    studies = studies.assign(dimensions=cell.surface.dimensions, search_space=None)
    for n in STAGES:
        (fit,) = regimes_of(curves(until(trials, n), studies=studies))
        interval = getattr(fit, QUANTITY) if isinstance(fit, Regimes) else Interval()
        if width(interval) <= cell.factor:
            break
    return Stopped(trials=n, interval=interval, early=n < STAGES[-1])


def key(cell: Stopping) -> Counts:
    surface = cell.surface
    power = {1.0: "distance", 2.0: "distance²"}[surface.power]
    return {
        "surface": power if surface.narrowing < 1 else f"{power}, narrowing",
        "dimensions": surface.dimensions,
        "noise": surface.noise,
        "factor": cell.factor,
    }


def seed(cell: Stopping) -> list[int]:
    surface = cell.surface
    shape = (surface.noise, surface.narrowing, surface.power, cell.factor)
    return [2030, surface.dimensions, *(round(100 * each) for each in shape)]


def count(
    cell: Stopping, estimates: Sequence[Stopped], truths: Sequence[dict[int, float]]
) -> Counts:
    """What covers, of all sweeps and of those that stopped before their last trial."""
    pairs = list(zip(estimates, truths, strict=True))
    return {
        "curves": len(pairs),
        "covered": sum(each.interval.holds(true[each.trials]) for each, true in pairs),
        "early": sum(each.early for each in estimates),
        "covered_early": sum(e.early and e.interval.holds(t[e.trials]) for e, t in pairs),
        "within": sum(width(each.interval) <= cell.factor for each in estimates),
        "trials": sum(each.trials for each in estimates),
    }


def tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = []
    for cells, _, total in groups(frame, ["surface", "dimensions", "noise", "factor"]):
        n, early = total["curves"], total["early"]
        of_early = share(total["covered_early"], early) if early else "–"
        shares = (share(total["covered"], n), share(early, n), of_early, share(total["within"], n))
        rows.append([*cells, *shares, share(total["trials"], n * STAGES[-1])])
    head = ["steps rise with", "dimensions", "seed noise", "width", "covered", "stopped",
            "covered where stopped", "within the width at the end", "trials"]  # fmt: skip
    return {"stopping": table(head, rows)}
