"""Whole searches, from the trials table to the regimes, on the surface of ``surface``.

``searches``: the truth is what is estimated, the regimes of the median, over fresh searches, of the
best of N. ``limits``: the truth is the surface's own critical batch size, that of its best points
without a seed's noise, and what is left of its loss once the limit of the search is estimated
(``analysis.fit.search_limits``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve, curves
from analysis.fit.fitted_points import fitted_points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located, locate
from analysis.fit.regimes import Regimes, regimes_of
from analysis.fit.search_limits import search_effect
from validation import surface as surfaces
from validation.harness import TOLERANCE, Counts, coverage, groups, tally
from validation.page import SHORT, number, share, table
from validation.surface import Surface, sweep

Truth = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Searches:
    """A surface, and the N of its searches."""

    surface: Surface
    trials: int
    multiple: float = surfaces.BUDGET
    """The budget of a trial in multiples of S(B)."""
    described: bool = False
    """Whether the studies say how many dimensions they tune."""


def truth(cell: Searches) -> Truth:
    """The five quantities of the median search, in natural logs."""
    return surfaces.truth(cell.surface, cell.trials, multiple=cell.multiple)


def simulate(
    cell: Searches, true: Any, rng: np.random.Generator, sweeps: int
) -> list[tuple[Curve, Any]]:
    """The curves of some sweeps, by the path that a results dataset takes."""
    frames = [
        sweep(cell.surface, cell.trials, rng, f"{i:04d}", multiple=cell.multiple)
        for i in range(sweeps)
    ]
    trials = pd.concat(frames, ignore_index=True)
    studies = None
    if cell.described:
        names = ["study", "workload", "dataset", "optimizer", "schedule", "batch_size"]
        studies = trials[names].drop_duplicates()
        studies = studies.assign(dimensions=cell.surface.dimensions, search_space=None)
    return [(curve, true) for curve in curves(trials, studies=studies)]


def located(curve: Curve) -> tuple[Curve, Located]:
    """A curve with what is located of it."""
    return curve, locate(fitted_points(curve), tolerance=TOLERANCE)


def searches_key(cell: Searches) -> Counts:
    surface = cell.surface
    return {"dimensions": surface.dimensions, "trials": cell.trials, "noise": surface.noise}


def searches_seed(cell: Searches) -> list[int]:
    return [2028, cell.surface.dimensions, cell.trials, round(1000 * cell.surface.noise)]


def count_searches(
    cell: Searches, estimates: Sequence[tuple[Curve, Located]], truths: Sequence[Truth]
) -> Counts:
    """What covers, and the medians of the estimates over the truth."""
    del cell
    made, places = zip(*estimates, strict=True)
    true, columns = truths[0], dict[str, float]()
    for name in QUANTITIES:
        values = [each.profiles[name][0].value for each in places]
        columns[f"true:{name}"] = float(f"{np.exp(true[name]):.6g}")
        columns[f"ratio:{name}"] = round(float(np.exp(np.median(values) - true[name])), 4)
    return {
        "censored": sum(len(curve.censored) for curve in made),
        "infeasible": sum(point.infeasible for curve in made for point in curve.points),
        "ran": sum(point.ran for curve in made for point in curve.points),
        "scatter": round(float(np.median([each.fits.best.noise for each in places])), 4),
        "level": sum(each.small_level and each.large_level for each in places),
        **columns,
        **tally(places, truths),
    }


def searches_tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = []
    for cells, group, total in groups(frame, ["dimensions", "trials", "noise"]):
        true, ratio = (group[f"{name}:critical_batch_size"] for name in ("true", "ratio"))
        scatter = f"{100 * group['scatter'].mean():.1f} %"
        estimated = f"{number(true.iloc[0])} · {ratio.mean():.2f}"
        level = share(total["level"], total["curves"])
        rows.append([*cells, scatter, *coverage(total), estimated, level])
    head = ["dimensions", "N", "seed noise", "scatter", *SHORT.values()]
    return {"searches": table([*head, "true · estimated over it", "both ends level"], rows)}


def loss(cell: Searches, fresh: int = surfaces.FRESH) -> float:
    """How many times the critical batch size of the median best of N that of the best points is;
    the median is over ``fresh`` searches."""
    of_search = surfaces.truth(cell.surface, cell.trials, fresh, cell.multiple)
    return surfaces.CRITICAL / float(np.exp(of_search["critical_batch_size"]))


def limit(curve: Curve) -> tuple[Regimes, Any] | None:
    """The regimes of a curve, and the effect of its search; None where there is none."""
    (fit,) = regimes_of([curve])
    effect = search_effect(curve, fit) if isinstance(fit, Regimes) else None
    return None if effect is None or not isinstance(fit, Regimes) else (fit, effect)


def limits_key(cell: Searches) -> Counts:
    surface = cell.surface
    power = {1.0: "distance", 2.0: "distance²", 4.0: "distance⁴"}[surface.power]
    kind = power if surface.narrowing else f"{power}, not narrowing"
    return {"surface": kind, "noise": surface.noise, "dimensions": surface.dimensions}


def limits_seed(cell: Searches) -> list[int]:
    surface = cell.surface
    of_surface = (surface.noise, surface.narrowing, surface.power)
    return [2029, surface.dimensions, *(round(100 * each) for each in of_surface)]


def count_limits(
    cell: Searches, estimates: Sequence[tuple[Regimes, Any] | None], losses: Sequence[float]
) -> Counts:
    """Critical batch sizes over the true one, and factors beside the true factor."""
    del cell
    known = [each for each in estimates if each is not None]
    factors = [effect.factor for _, effect in known]
    pairs = [(fit.critical_batch_size.value, effect.factor.value) for fit, effect in known]
    both = [(value, by) for value, by in pairs if value is not None and by is not None]
    return {
        "curves": len(estimates),
        "located": len(both),
        "true": round(losses[0], 4),
        "before": _median([value / surfaces.CRITICAL for value, _ in both]),
        "after": _median([value * by / surfaces.CRITICAL for value, by in both]),
        "factor": _median([factor.value or np.nan for factor in factors]),
        "covered": sum(factor.holds(losses[0]) for factor in factors),
        "notes": sum(effect.note(fit.critical_batch_size) is not None for fit, effect in known),
    }


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None


def limits_tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = [
        [
            *cells,
            *(f"{group[name].mean():.2f}" for name in ("before", "after")),
            f"{group['true'].iloc[0]:.2f}",
            f"{group['factor'].mean():.2f}",
            *(share(total[name], total["curves"]) for name in ("covered", "notes", "located")),
        ]
        for cells, group, total in groups(frame, ["surface", "noise", "dimensions"])
    ]
    head = ["steps rise with", "seed noise", "tuned dimensions", "critical batch size before",
            "after", "true factor", "estimated", "covered", "notes", "located"]  # fmt: skip
    return {"limits": table(head, rows)}
