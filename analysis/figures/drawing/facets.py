"""Which curves share a panel, what they are called there, and the panel's title and axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.figures.drawing.optimizer_styles import CurveStyle, style_numbers
from analysis.figures.drawing.style import curve_style
from analysis.figures.drawing.text_fit import no_snake_case
from analysis.fit.regimes import Regimes
from analysis.formatting import CITATIONS, units

Pair = tuple[Curve, Regimes | None]
Pairs = list[Pair]

_ESTIMATORS = {
    "run": "every run a point",
    "minimum": "best of {}",
    "best_of_10": "best of 10 of {}",
    "median_of_searches": "median best of {}",
    "iso_loss": "at equal loss, best of {}",
}


def facets(pairs: Pairs) -> list[Pairs]:
    """The curves of each workload, data set and target, with their regimes."""
    panels: dict[tuple[str, ...], Pairs] = {}
    for curve, fit in pairs:
        key = (*(str(curve.group.get(n)) for n in ("workload", "dataset")), str(curve.target))
        panels.setdefault(key, []).append((curve, fit))
    return list(panels.values())


def curve_names(pairs: Pairs) -> list[str]:
    """Names that distinguish the curves of a panel, for its legend; a data set and a model of which
    the workload's name has them are in it."""
    groups = [dict(curve.group) for curve, _ in pairs]
    for group in groups:
        if group.get("source"):
            group["source"] = CITATIONS.get(str(group["source"]), group["source"])
        implied = (
            n for n in ("dataset", "model") if str(group.get(n)) in str(group.get("workload"))
        )
        group |= dict.fromkeys(implied)
    return [no_snake_case(name) for name in labels(groups)]


def styles_of(names: Iterable[str]) -> dict[str, CurveStyle]:
    """The style of each curve's name, the same in every panel of a figure."""
    return {name: curve_style(number) for name, number in style_numbers(names).items()}


def unit_of(pairs: Pairs) -> str:
    """What the curves' examples are called, in the plural."""
    return units(curve.example_unit for curve, _ in pairs)


def to_target(quantity: str, pairs: Sequence[Pair]) -> str:
    """The name of an axis of steps or of examples (by their unit) to target."""
    relative = any(curve.relative for curve, _ in pairs)
    return f"{quantity} to target" + (", relative" if relative else "")


def caption(pairs: Pairs) -> str:
    """Workload, target and estimator, by which a panel is titled."""
    curves = [curve for curve, _ in pairs]
    trials = sorted({curve.trials for curve in curves})
    count = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]}–{trials[-1]}"
    estimator = "run" if any(curve.repeats for curve in curves) else curves[0].estimator
    parts = [str(curves[0].group.get("workload") or ""), str(curves[0].target or "")]
    return " · ".join(filter(None, [*parts, _ESTIMATORS[estimator].format(count)]))
