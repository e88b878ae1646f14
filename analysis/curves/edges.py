"""Is the best trial of a study inside its search space, with room around it?

An optimum on the edge says only that the space was too small (Shallue et al. 2019, §4: enlarge it
and search again). Each tuned dimension is looked at in its scale's unit interval, in which the
search draws evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from results.storage.values import mapping

MARGIN = 0.05
"""Share of a dimension next to either end that counts as its edge."""

NEAR = 1.1
"""Trials within so many times the best's steps to target are near-best."""

_STEPS = "_steps"
"""A dimension given as a share of the budget (``decay``) is a metaparameter in steps in the trials
(``decay_steps``), and not there under its own name."""

_NATURAL = {("linear", 0.0), ("integer", 0.0)}
"""Lower ends that cannot be moved: nothing lies below no decay, no warmup, no smoothing."""


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A tuned dimension whose optimum has no room on one side."""

    dimension: str
    side: Literal["low", "high"]
    verdict: Literal["edge", "near"]
    """``edge``: the best trial itself is there; ``near``: only a near-best one is."""
    position: float
    """Where in the unit interval the trial nearest to that end lies; 0 and 1 are the ends."""
    bound: float
    """The end itself."""

    def __str__(self) -> str:
        end = "lower" if self.side == "low" else "upper"
        return f"{self.dimension} at its {end} end {self.bound:g}"

    @property
    def told(self) -> str:
        """The same, and whether it is not of the best trial itself."""
        return str(self) if self.verdict == "edge" else f"{self} (near-best)"


def edge(
    space: str | Mapping[str, Any],
    best: Mapping[str, Any],
    near_best: Sequence[Mapping[str, Any]] = (),
    *,
    budget_steps: float | None = None,
    margin: float = MARGIN,
) -> list[Edge]:
    """The dimensions of ``space`` on whose edge the optimum sits; empty when there is room.

    Args:
        space: the study's search space, JSON text or a mapping, as
            ``{"learning_rate": {"log": [1e-4, 10]}, …}``. Fixed values and discrete choices have
            no edge, and neither has a linear or integer dimension at 0.
        best: the metaparameters of the best trial, as resolved.
        near_best: those of trials nearly as good.
        budget_steps: what a length in steps (of a decay, of warmup) is a share of.
    """
    parsed = mapping(space, "search_space") if isinstance(space, str) else space
    found = []
    for name, dimension in parsed.items():
        if not isinstance(dimension, Mapping) or len(dimension) != 1:
            continue
        ((scale, bounds),) = dimension.items()
        if scale not in _UNIT:
            continue
        places = [_place(name, scale, bounds, one, budget_steps) for one in (best, *near_best)]
        if places[0] is None:
            continue
        others = [place for place in places if place is not None]
        share = name not in best and name + _STEPS in best
        found += _sides(name, scale, bounds, places[0], others, margin, share)
    return found


def parameters(text: Any) -> dict[str, Any]:
    """Metaparameters as a mapping, from the JSON text of a trials row or a mapping."""
    if isinstance(text, str):
        return mapping(text, "metaparameters") if text else {}
    return dict(text) if isinstance(text, Mapping) else {}


def near_best(
    steps: Sequence[float | None], metaparameters: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Those of the trials whose steps to target are within ``NEAR`` of the least, best first."""
    hits = [
        (float(value), i) for i, value in enumerate(steps) if value is not None and value == value
    ]
    least = min((value for value, _ in hits), default=math.inf)
    return [metaparameters[i] for value, i in sorted(hits) if value <= NEAR * least]


def _sides(
    name: str,
    scale: str,
    bounds: Sequence[float],
    best: float,
    all_: list[float],
    margin: float,
    share: bool,
) -> list[Edge]:
    sides = []
    low, high = float(bounds[0]), float(bounds[1])
    if min(all_) < margin and (scale, low) not in _NATURAL:
        verdict: Literal["edge", "near"] = "edge" if best < margin else "near"
        sides.append(
            Edge(dimension=name, side="low", verdict=verdict, position=min(all_), bound=low)
        )
    whole_budget = share and high == 1.0
    if max(all_) > 1 - margin and not whole_budget:
        verdict = "edge" if best > 1 - margin else "near"
        sides.append(
            Edge(dimension=name, side="high", verdict=verdict, position=max(all_), bound=high)
        )
    return sides


def _place(
    name: str,
    scale: str,
    bounds: Sequence[float],
    metaparameters: Mapping[str, Any],
    budget_steps: float | None,
) -> float | None:
    value = metaparameters.get(name)
    if value is None and budget_steps:
        steps = metaparameters.get(name + _STEPS)
        value = None if steps is None else steps / budget_steps
    if value is None or isinstance(value, (str, bool)):
        return None
    return _UNIT[scale](float(value), float(bounds[0]), float(bounds[1]))


def _linear(x: float, low: float, high: float) -> float:
    return (x - low) / (high - low)


def _integer(x: float, low: float, high: float) -> float:
    return (x - low + 0.5) / (high - low + 1)


def _log(x: float, low: float, high: float) -> float:
    return math.log(x / low) / math.log(high / low)


def _reverse_log(x: float, low: float, high: float) -> float:
    return math.log((1 - x) / (1 - low)) / math.log((1 - high) / (1 - low))


_UNIT = {"linear": _linear, "integer": _integer, "log": _log, "reverse_log": _reverse_log}
