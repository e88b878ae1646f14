"""The five quantities of a curve by its knee, an assumed form (``regimes --form knee``).

With S = S_min (1 + (B_crit / B)^(a k))^(1 / k) and a = 1: E_min = S_min B_crit, E leaves E_min by a
factor of 1 + τ at B_crit ((1 + τ)^k - 1)^(1 / k), and S reaches S_min within that factor at
B_crit ((1 + τ)^k - 1)^(-1 / (a k)). They are asymptotes: where an end of the tested range is not
level, they lie beyond it. Their intervals are percentiles of a parametric bootstrap, which hold as
far as the form does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from analysis.fit.convex import Array
from analysis.fit.interval import BY_EXAMPLES, QUANTITIES, Interval
from analysis.fit.knee import BATCH, BEND, SLOPE, STEPS
from analysis.fit.regimes import Regimes
from analysis.notes import Note
from results.errors import ResultsError, nearest

FORMS = ("convex", "knee")
"""What the quantities come from: the convex curve, which assumes no form, or the knee."""
REPLICATES = 1000


def check_form(form: str) -> None:
    """
    Raises:
        ResultsError: there is no such form; the hint names the nearest.
    """
    if form not in FORMS:
        hint = nearest(form, FORMS, f"known: {', '.join(FORMS)}")
        raise ResultsError(f"there is no form {form!r}", hint=hint)


def critical_within(fit: Regimes) -> Interval:
    """The knee's critical batch size where it lies within the tested ones, or else open."""
    critical = by_knee(fit)[0]["critical_batch_size"]
    low, high = fit.batch_sizes[0], fit.batch_sizes[-1]
    known = critical.value is not None and low <= critical.value <= high
    return critical if known else Interval()


def by_knee(fit: Regimes) -> tuple[Mapping[str, Interval], list[Note]]:
    """The quantities of ``fit`` by its knee, and notes on the form.

    A knee whose small end has a slope of its own has no least examples, so that what rests on them
    is unknown.
    """
    knee = fit.knee
    estimates = _logs(knee.params, fit.tolerance)
    drawn = _logs(knee.replicates(REPLICATES, seed=0), fit.tolerance)
    tails = (1 - fit.level) / 2, (1 + fit.level) / 2
    unknown = set(BY_EXAMPLES) if fit.grows else set()
    if knee.sloped:
        unknown |= {*BY_EXAMPLES, "critical_batch_size"}
    intervals = {}
    for name in QUANTITIES:
        if name in unknown:
            intervals[name] = Interval()
            continue
        value = float(estimates[name])
        low, high = np.quantile(drawn[name], tails)
        intervals[name] = Interval.of_logs(value, min(low, value), max(high, value))
    return intervals, _notes(fit, intervals)


def _logs(params: Array, tolerance: float) -> dict[str, Array]:
    """Natural logs of the quantities of knees (..., 4)."""
    steps, critical = params[..., STEPS], params[..., BATCH]
    k, slope = np.exp(params[..., BEND]), params[..., SLOPE]
    apart = np.log(np.expm1(k * math.log1p(tolerance))) / k
    return {
        "perfect_scaling_until": critical + apart,
        "maximal_parallelism_from": critical - apart / slope,
        "critical_batch_size": critical,
        "min_steps": steps,
        "min_examples": steps + critical,
    }


def _notes(fit: Regimes, intervals: Mapping[str, Interval]) -> list[Note]:
    knee = fit.knee
    notes = [Note("knee", form=knee.form, k=math.exp(knee.params[BEND]))]
    if knee.sloped:
        notes.append(Note("knee_slope", slope=knee.params[SLOPE]))
    for end, is_level, what, x in (
        ("large", fit.large_level, "steps", fit.located.points.span[1]),
        ("small", fit.small_level, "examples", fit.located.points.span[0]),
    ):
        asymptote = intervals[f"min_{what}"].value
        if not is_level and asymptote is not None:
            there = float(knee.log_steps(np.array([x]))[0]) + (x if what == "examples" else 0.0)
            below = 1 - asymptote / math.exp(there)
            notes.append(Note("extrapolated", what=f"fewest {what}", end=end, below=below))
    return notes
