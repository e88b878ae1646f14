"""One curve as the page draws it: points, the fitted knee, regimes, and the search behind it.

All are plain values for JSON, with numbers no longer than a picture can show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.groups import label
from analysis.curves.points import Point, tabulate
from analysis.curves.runs import CLASSES
from analysis.fit.interval import QUANTITIES
from analysis.fit.reference_lines import LINEAR, SQUARE_ROOT, level, perfect_examples, regime_spans
from analysis.fit.regimes import Regimes
from analysis.formatting import CITATIONS, units

_NAMED = ("workload", "optimizer", "submitter", "recipe")
"""Columns by which people tell published curves of one source apart."""
DIGITS = 5
"""Significant digits of a number that is not whole."""
_MOST_NUMBERS = 24
"""Numbers of trials at which the expected best of a batch size is drawn, at most."""


def series(curve: Curve, regimes: Regimes | None, style: int) -> dict[str, Any]:
    """Everything that is drawn of ``curve`` as plain values.

    ``points`` are columns: those of ``points.tabulate``, and the trial at the minimum
    with its metaparameters.
    """
    return {
        "label": curve.label,
        "look": style,
        "source": curve.group.get("source"),
        "trials": curve.trials,
        "estimator": curve.named,
        "units": units([curve.example_unit]),
        "relative": curve.relative,
        "grows": curve.grows,
        "points": columns([_point(point) for point in curve.points]),
        **_located(curve, regimes),
        "search": _search(curve, regimes),
    }


def _point(point: Point) -> dict[str, Any]:
    row = tabulate(point)
    del row["examples"]  # the page counts them, of other steps too
    phases = point.phases
    return {
        **row,
        "phases": None if phases is None else [list(phases.starts), list(phases.sizes)],
        "trial": point.trial,
        "best": metaparameters(point) or None,
        "rates_low": min(point.rates, default=None),
        "rates_high": max(point.rates, default=None),
        "rate": point.rates[0] if point.rates else None,
        "edges": row["edges"] or None,
        "on_edge": any(edge.verdict == "edge" for edge in point.edges) or None,
    }


def metaparameters(point: Point) -> str:
    """The metaparameters of the best trial: ``learning_rate 0.12, momentum 0.9``."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in point.best.items()
    )


def _located(curve: Curve, regimes: Regimes | None) -> dict[str, Any]:
    if regimes is None:
        return {"fit": None, "regimes": None, "regime_spans": []}
    fit = {name: regimes.best[name] for name in ("k", "a", "min_steps", "critical_batch_size")}
    return {
        "fit": compact(
            {**fit, "over": list(regimes.fitted_over), "perfect": perfect_examples(curve, regimes)}
        ),
        "regimes": {name: compact(getattr(regimes, name).to_dict()) for name in QUANTITIES},
        "regime_spans": [
            [span.regime, compact(span.low), compact(span.high), span.sure]
            for span in regime_spans(regimes)
        ],
    }


def _search(curve: Curve, regimes: Regimes | None) -> dict[str, Any] | None:
    """The search behind the points; None where there was none."""
    if curve.repeats:
        return None
    rules = (level(curve, regimes, power) for power in (LINEAR, SQUARE_ROOT))
    return {
        "rules": [compact(rule) for rule in rules],
        "divided": any(point.effective_learning_rate is not None for point in curve.points),
        "budgets": list(filter(None, map(_budget, curve.points))),
        "tried": list(filter(None, map(_trials, curve.points))),
    }


def _budget(point: Point) -> dict[str, Any] | None:
    """The expected best of n trials over the best of N, for some n."""
    best = point.budget
    if best is None or len(best.n) < 2:
        return None
    places = np.unique(np.linspace(0, len(best.n) - 1, _MOST_NUMBERS).round().astype(int))
    return {
        "batch_size": point.batch_size,
        "n": compact([float(best.shares[i]) for i in places]),
        "ratio": compact([best.expected[i] / best.expected[-1] for i in places]),
    }


def _trials(point: Point) -> dict[str, Any] | None:
    """Learning rate (effective where there is a momentum), steps and outcome of each trial."""
    trials = [trial for trial in point.trial_outcomes if trial.learning_rate]
    if not trials:
        return None
    return {
        "batch_size": point.batch_size,
        "rate": compact([trial.learning_rate for trial in trials]),
        "momentum": compact([trial.momentum for trial in trials]),
        "steps": compact([trial.steps for trial in trials]),
        "became": [CLASSES.index(trial.became) for trial in trials],
        "trial": [trial.trial for trial in trials],
    }


def overlay(curve: Curve) -> dict[str, Any]:
    """A published curve, which is drawn beside others: its points alone. It is called as people
    call it: ``Shallue et al. 2019: mnist-simple-cnn, momentum``."""
    source = str(curve.group.get("source"))
    points = [point for point in curve.points if point.steps is not None]
    ends = [point.bar or (None, None) for point in points]
    return {
        "label": f"{CITATIONS.get(source, source)}: {label(curve.group, _NAMED)}",
        "source": curve.group.get("source"),
        "workload": curve.group.get("workload"),
        "dataset": curve.group.get("dataset"),
        "target": None if curve.target is None else str(curve.target),
        "batch_size": [point.batch_size for point in points],
        "steps": compact([point.steps for point in points]),
        "low": compact([low for low, _ in ends]),
        "high": compact([None if h is None or not math.isfinite(h) else h for _, h in ends]),
    }


def compact(value: Any) -> Any:
    """``value`` with whole numbers as they are, others to ``DIGITS`` significant digits, and what
    is not finite as None; mappings and sequences all the way down."""
    if isinstance(value, Mapping):
        return {str(key): compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a numpy number
        value = value.item()
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns, without those that have no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    cells = {name: [compact(row.get(name)) for row in rows] for name in names}
    return {name: column for name, column in cells.items() if column.count(None) < len(column)}
