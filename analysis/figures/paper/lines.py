"""Curves of steps to target as lines of a panel, and the published ones beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.curves.curve import Curve
from analysis.figures.drawing import marks
from analysis.figures.paper.panel import Dot, Line
from analysis.fit.reference_lines import perfect_examples
from analysis.fit.regimes import Regimes, TooFewBatchSizesError, regimes

SOURCES = {
    "shallue_2019_digitized": "Shallue et al. 2019",
    "zhang_2024": "Zhang et al. 2024",
    "mlperf_rcp": "MLPerf",
}
"""How others are cited in a legend."""
OURS = (None, "batchscale")
"""``source`` of what was measured with these workloads."""


def line_of(
    curve: Curve,
    found: Regimes | None,
    label: str,
    *,
    source: str | None = None,
    alike: str | None = None,
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
        perfect=perfect_examples(curve, found),
        source=source,
        alike=alike,
        row={
            "target": None if curve.target is None else str(curve.target),
            **{f"curve_{name}": value for name, value in curve.group.items()},
        },
    )


def located(curve: Curve) -> Regimes | None:
    """Its regimes; None where there are too few batch sizes."""
    try:
        return regimes(curve)
    except TooFewBatchSizesError:
        return None


def cited(curve: Curve) -> str:
    """Whose curve it is, as a legend says it."""
    source = curve.group.get("source")
    return SOURCES.get(str(source), str(source)) if source not in OURS else "own"


def foreign(curve: Curve) -> bool:
    """Whether others measured it."""
    return curve.group.get("source") not in OURS


def beside(
    curves: Sequence[tuple[Curve, str]], published: Sequence[Curve], *, goals: bool = False
) -> list[Line]:
    """Of the ``published`` those of a data set, model and optimizer that one of ``curves`` (with
    their labels) is of, each once; the target is told where it is another, or with ``goals``."""
    found: list[Line] = []
    mine = {_what(curve.group): label for curve, label in curves if _what(curve.group)}
    matching = [other for other in published if _what(other.group) in mine]
    targets = {str(curve.target) for curve, _ in curves}
    for other in matching:
        words = [cited(other)]
        if len({str(each.group.get("optimizer")) for each in matching}) > 1:
            words.append(str(other.group.get("optimizer")))
        if other.target is not None and (goals or targets != {str(other.target)}):
            words.append(goal(other))
        text = ", ".join(words)
        found.append(
            line_of(other, None, text, source=cited(other), alike=mine[_what(other.group)])
        )
    return found


def goal(curve: Curve) -> str:
    """The target without its metric: ``< 0.04``."""
    return "" if curve.target is None else str(curve.target).partition(" ")[2]


def _what(group: Mapping[str, Any]) -> tuple[str, ...]:
    values = [group.get(name) for name in ("dataset", "model", "optimizer")]
    return tuple(map(str, values)) if all(values[:2]) else ()
