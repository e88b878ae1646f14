"""Curves as lines of a panel: steps to target, the best metric, and published curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from analysis.curves.best_metric import BestCurve
from analysis.curves.curve import Curve
from analysis.figures.drawing import marks
from analysis.figures.paper.panels import Dot, Line, Panel
from analysis.fit.reference_lines import perfect_examples
from analysis.fit.regimes import Regimes
from analysis.formatting import CITATIONS, units
from results.counts import count

OURS = (None, "batchscale")
"""``source`` of data that was measured with these workloads."""


def line_of(
    curve: Curve,
    fit: Regimes | None,
    label: str,
    *,
    source: str | None = None,
    beside: str | None = None,
) -> Line:
    """Steps to target with the error bars of a best of N; the line of perfect scaling."""
    return Line(
        label=label,
        dots=tuple(
            Dot(
                batch_size=point.batch_size,
                value=point.steps,
                bar=point.bar,
                why_open=marks.why_open(point),
                reached=not point.censored,
                row={"steps": point.steps, "trials": point.trials, "hits": point.hits},
            )
            for point in curve.points
        ),
        perfect=perfect_examples(curve, fit),
        source=source,
        beside=beside,
        row={
            "target": None if curve.target is None else str(curve.target),
            **{f"curve_{name}": value for name, value in curve.group.items()},
        },
    )


def panel_of(
    title: str, curves: Sequence[Curve], lines: Iterable[Line], measure: str, **options: Any
) -> Panel:
    """A panel of the lines of these curves, with their target as its note where they share one."""
    targets = {str(curve.target) for curve in curves if curve.target is not None}
    note = targets.pop() if len(targets) == 1 else ""
    known = {"unit": units(curve.example_unit for curve in curves), "note": note, **options}
    return Panel(title=title, lines=tuple(lines), measure=measure, **known)


def is_published(curve: Curve) -> bool:
    """Whether others measured it."""
    return curve.group.get("source") not in OURS


def published_lines(
    curves: Sequence[tuple[str, Curve]], published: Sequence[Curve], *, goals: bool = False
) -> Iterator[Line]:
    """Of the ``published`` those of a data set, model and optimizer that one of ``curves`` (with
    their labels) is of, each once; with its target where that differs, or with ``goals``. Where
    there is none, Nesterov's momentum stands for momentum."""
    labels = {_subject(curve): label for label, curve in curves if _subject(curve)}
    matching = [other for other in published if _subject(other) in labels]
    if named := not matching:
        labels |= {(*s[:2], "nesterov"): x for s, x in labels.items() if s[2] == "momentum"}
        matching = [other for other in published if _subject(other) in labels]
    targets = {str(curve.target) for _, curve in curves}
    named |= len({_subject(other)[2] for other in matching}) > 1
    for other in matching:
        source = str(other.group.get("source"))
        author = CITATIONS.get(source, source) if is_published(other) else "own"
        parts = [author, *([_subject(other)[2]] if named else [])]
        if other.target is not None and (goals or targets != {str(other.target)}):
            parts.append(goal(other))
        beside = labels[_subject(other)]
        yield line_of(other, None, ", ".join(parts), source=author, beside=beside)


def goal(curve: Curve) -> str:
    """The target without its metric: ``< 0.04``."""
    return "" if curve.target is None else str(curve.target).partition(" ")[2]


def _subject(curve: Curve) -> tuple[str, ...]:
    values = [curve.group.get(name) for name in ("dataset", "model", "optimizer")]
    return tuple(map(str, values)) if all(values[:2]) else ()


def best_panel(
    title: str, curves: Sequence[tuple[str, BestCurve]], *, note: str, row: int
) -> Panel:
    """The best value of a metric, a line a curve with its label."""
    _, first = curves[0]
    return Panel(
        title=title,
        lines=tuple(_best_line(curve, label) for label, curve in curves),
        measure=f"best {first.target.metric.replace('_', ' ')}",
        note=note,
        unit=units(curve.example_unit for _, curve in curves),
        counted=False,
        row=row,
    )


def _best_line(curve: BestCurve, label: str) -> Line:
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


def has_values(curves: Sequence[BestCurve]) -> bool:
    """Whether any value is known."""
    return any(point.value is not None for curve in curves for point in curve.points)


def unknown_points(curves: Sequence[BestCurve]) -> str:
    """What gaps there are, for the foot of a figure; empty where there is none."""
    points = [point for curve in curves for point in curve.points if point.value is None]
    if not points:
        return ""
    reasons = ", ".join(dict.fromkeys(reason for point in points for reason in point.why))
    trials = count(sum(sum(point.why.values()) for point in points), "trial")
    return (
        f"{count(len(points), 'point', 'are')} not known, for {trials} ({reasons}): gaps; "
        "see the CSV"
    )


def main_reason(curves: Sequence[BestCurve]) -> str:
    """The most frequent reason for which values are not known."""
    reasons: Counter[str] = Counter()
    for curve in curves:
        for point in curve.points:
            reasons.update(point.why)
    return reasons.most_common(1)[0][0] if reasons else "no trials of a search"
