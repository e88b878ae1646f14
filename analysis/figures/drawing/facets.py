"""Curves by workload, data set and target: those that stand in one panel, and what names them."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.figures.drawing.text_fit import Fits, fitted
from analysis.fit.regimes import Regimes
from analysis.formatting import units

Pairs = list[tuple[Curve, Regimes | None]]

_LONG = 14
"""Letters that a source's name may take in a legend."""
_ESTIMATORS = {
    "run": "every run a point",
    "minimum": "best of {}",
    "best_of_10": "best of 10 of {}",
    "median_of_searches": "median best of {}",
}


def facets(curves: Sequence[Curve], regimes: Sequence[Regimes | None]) -> list[Pairs]:
    """The curves of each workload, data set and target, with their regimes."""
    panels: dict[tuple[str, ...], Pairs] = {}
    for curve, found in zip(curves, regimes, strict=True):
        key = (*(str(curve.group.get(n)) for n in ("workload", "dataset")), str(curve.target))
        panels.setdefault(key, []).append((curve, found))
    return list(panels.values())


def names(pairs: Pairs) -> list[str]:
    """What tells the curves of a panel apart, for its legend."""
    groups = [dict(curve.group) for curve, _ in pairs]
    sources = {str(group["source"]) for group in groups if group.get("source")}
    short = {name: _shortened(name) for name in sources}
    if len(set(short.values())) == len(short):
        groups = [
            {**group, "source": short[str(group["source"])]} if group.get("source") else group
            for group in groups
        ]
    return labels(groups)


def _shortened(source: str) -> str:
    """Of a long name the first words that have room: ``shallue_2019_digitized`` is
    ``shallue_2019``."""
    words = source.split("_")
    while len(words) > 1 and len("_".join(words)) > _LONG:
        words.pop()
    return "_".join(words)


def batch_size(pairs: Pairs) -> str:
    """What the axis of batch sizes is called."""
    return f"batch size ({examples_of(pairs)})"


def examples_of(pairs: Pairs) -> str:
    """What the curves' examples are called, in the plural."""
    return units(curve.example_unit for curve, _ in pairs)


def to_target(what: str, pairs: Pairs) -> str:
    """What an axis of steps or of examples (by their unit) to target is called."""
    relative = any(curve.relative for curve, _ in pairs)
    return f"{what} to target" + (", relative" if relative else "")


MANY = 6
"""Panels from which on each is smaller, so that more stand across."""


def caption(pairs: Pairs, fits: Fits = lambda _: True) -> str:
    """Workload, target and what stands for a batch size: on one line where it ``fits``, else on
    one or two each."""
    curves = [curve for curve, _ in pairs]
    words = [str(curves[0].group["workload"])] if curves[0].group.get("workload") else []
    if curves[0].target is not None:
        words.append(str(curves[0].target))
    n = sorted({curve.trials for curve in curves})
    many = f"{n[0]}" if len(n) == 1 else f"{n[0]}–{n[-1]}"
    named = "run" if any(curve.repeats for curve in curves) else curves[0].estimator
    words.append(_ESTIMATORS[named].format(many))
    whole, rest = " · ".join(words), " · ".join(words[1:])
    if fits(whole) or len(words) < 2:
        return whole if fits(whole) else fitted(whole, fits, lines=2)
    lines = [words[0], rest] if fits(rest) else words
    return "\n".join(fitted(line, fits, lines=2) for line in lines)
