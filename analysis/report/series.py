"""One curve as the page draws it: points, the fitted knee, regimes, and what the search tried."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.points import Point, tabulate
from analysis.curves.runs import CLASSES
from analysis.fit.knee import QUANTITIES
from analysis.fit.reference_lines import LINEAR, SQUARE_ROOT, level, perfect_examples, regime_spans
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from analysis.report.compact import columns, compact

_SHOWN = 24
"""Numbers of trials at which the expected best of a batch size is drawn, at most."""


def series(curve: Curve, found: Regimes | None, look: int) -> dict[str, Any]:
    """Everything that is drawn of ``curve`` as plain values.

    ``points`` are columns: those of ``points.tabulate``, and the trial at the minimum
    with its metaparameters.
    """
    left_out = set(found.left_out) if found else set()
    return {
        "label": curve.label,
        "look": look,
        "source": curve.group.get("source"),
        "trials": curve.trials,
        "estimator": curve.named,
        "units": units([curve.example_unit]),
        "relative": curve.relative,
        "points": columns([_point(point, point.batch_size in left_out) for point in curve.points]),
        **_located(curve, found),
        "search": _search(curve, found),
    }


def _point(point: Point, left_out: bool) -> dict[str, Any]:
    told = tabulate(point)
    del told["examples"]  # batch size times steps: the page multiplies
    return {
        **told,
        "trial": point.trial,
        "best": words(point) or None,
        "rates_low": min(point.rates, default=None),
        "rates_high": max(point.rates, default=None),
        "rate": point.rates[0] if point.rates else None,
        "edges": told["edges"] or None,
        "on_edge": any(edge.verdict == "edge" for edge in point.edges) or None,
        "left_out": left_out or None,
    }


def words(point: Point) -> str:
    """The metaparameters of the best trial: ``learning_rate 0.12, momentum 0.9``."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in point.best.items()
    )


def _located(curve: Curve, found: Regimes | None) -> dict[str, Any]:
    if found is None:
        return {"fit": None, "regimes": None, "regime_spans": []}
    fit = {name: found.best[name] for name in ("k", "a", "min_steps", "critical_batch_size")}
    return {
        "fit": compact(
            {**fit, "over": list(found.fitted_over), "perfect": perfect_examples(curve, found)}
        ),
        "regimes": {name: compact(getattr(found, name).to_dict()) for name in QUANTITIES},
        "regime_spans": [
            [one.regime, compact(one.low), compact(one.high), one.sure]
            for one in regime_spans(found)
        ],
    }


def _search(curve: Curve, found: Regimes | None) -> dict[str, Any] | None:
    """What is known of the search behind the points; None where there was none."""
    if curve.repeats:
        return None
    rules = (level(curve, found, power) for power in (LINEAR, SQUARE_ROOT))
    return {
        "rules": [compact(rule) for rule in rules],
        "divided": any(point.effective_learning_rate is not None for point in curve.points),
        "budgets": [each for point in curve.points if (each := _budget(point)) is not None],
        "tried": [each for point in curve.points if (each := _tried(point)) is not None],
    }


def _budget(point: Point) -> dict[str, Any] | None:
    """The expected best of n trials over the best of N, for some n."""
    each = point.budget
    if each is None or len(each.n) < 2:
        return None
    some = np.unique(np.linspace(0, len(each.n) - 1, _SHOWN).round().astype(int))
    return {
        "batch_size": point.batch_size,
        "n": compact([float(each.shares[i]) for i in some]),
        "ratio": compact([each.expected[i] / each.expected[-1] for i in some]),
    }


def _tried(point: Point) -> dict[str, Any] | None:
    """Learning rate (effective where there is a momentum), steps and fate of each trial."""
    rows = [one for one in point.trial_outcomes if one.learning_rate]
    if not rows:
        return None
    return {
        "batch_size": point.batch_size,
        "rate": compact([one.learning_rate for one in rows]),
        "momentum": compact([one.momentum for one in rows]),
        "steps": compact([one.steps for one in rows]),
        "became": [CLASSES.index(one.became) for one in rows],
        "trial": [one.trial for one in rows],
    }


def overlay(curve: Curve) -> dict[str, Any]:
    """A published curve to be drawn beside others: its points alone."""
    reached = [point for point in curve.points if point.steps is not None]
    ends = [point.bar or (None, None) for point in reached]
    return {
        "label": curve.label,
        "source": curve.group.get("source"),
        "workload": curve.group.get("workload"),
        "dataset": curve.group.get("dataset"),
        "target": None if curve.target is None else str(curve.target),
        "batch_size": [point.batch_size for point in reached],
        "steps": compact([point.steps for point in reached]),
        "low": compact([low for low, _ in ends]),
        "high": compact([None if h is None or not math.isfinite(h) else h for _, h in ends]),
    }
