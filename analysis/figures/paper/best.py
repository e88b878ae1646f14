"""The best value of a metric over batch sizes as lines of a panel."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.curves.best_metric import BestCurve
from analysis.figures.paper.panel import Dot, Line
from results.counts import count


def line_of(curve: BestCurve, label: str) -> Line:
    """A gap where the value is not known; the columns say how many trials, and why."""
    return Line(
        label=label,
        dots=tuple(
            Dot(
                batch_size=point.batch_size,
                value=point.value,
                row={
                    "under": None if curve.limit is None else str(curve.limit),
                    "limit_steps": point.limit,
                    "trials": point.trials,
                    "unknown_trials": sum(point.why.values()),
                    "best_seen": point.bound,
                    "step": point.step,
                    "trial": point.trial,
                    "note": point.why_text,
                },
            )
            for point in curve.points
        ),
        row={
            "metric": curve.target.metric,
            **{f"curve_{name}": value for name, value in curve.group.items()},
        },
    )


def measure(curve: BestCurve) -> str:
    """``best validation error``."""
    return f"best {curve.target.metric.replace('_', ' ')}"


def known(curves: Sequence[BestCurve]) -> bool:
    """Whether any value is."""
    return any(point.value is not None for curve in curves for point in curve.points)


def foot(curves: Sequence[BestCurve]) -> str:
    """What gaps there are, for the foot of a figure; empty where there is none."""
    lost = [point for curve in curves for point in curve.points if point.value is None]
    if not lost:
        return ""
    reasons = dict.fromkeys(reason for point in lost for reason in point.why)
    trials = sum(sum(point.why.values()) for point in lost)
    return (
        f"{count(len(lost), 'point', 'are')} not known, for {count(trials, 'trial')} "
        f"({', '.join(reasons)}): "
        "gaps; see the CSV"
    )


def why_not(curves: Sequence[BestCurve]) -> str:
    """Why nothing is known, in the words of the most frequent reason."""
    counts: dict[str, int] = {}
    for curve in curves:
        for point in curve.points:
            for reason, many in point.why.items():
                counts[reason] = counts.get(reason, 0) + many
    return max(counts, key=lambda reason: counts[reason], default="no trials of a search")
