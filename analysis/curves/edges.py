"""Does the best trial of a study lie on the edge of its search space?

An optimum on the edge says only that the space was too small (Shallue et al. 2019, §4: enlarge it
and search again). Each tuned dimension is checked in its scale's unit interval, in which the search
draws evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from analysis.curves.runs import Rows, Runs, number, parameters
from analysis.notes import Note
from results.batch_phases import BatchPhases
from results.storage.rows import by_age
from results.storage.values import mapping

MARGIN = 0.05
"""Share of a dimension next to either end that counts as its edge."""

NEAR = 1.1
"""Trials within this many times the best's steps to target are near-best."""

_STEPS = "_steps"
"""A dimension given as a share of the budget (``decay``) is a metaparameter in steps in the trials
(``decay_steps``), and not there under its own name."""

_NATURAL = {("linear", 0.0), ("integer", 0.0)}
"""Lower ends that cannot be moved: nothing lies below no decay, no warmup, no smoothing."""


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An end of a tuned dimension on which the optimum sits, or a near-best trial."""

    dimension: str
    side: Literal["low", "high"]
    verdict: Literal["edge", "near"]
    """``edge``: the best trial itself is there; ``near``: only a near-best one is."""
    bound: float
    """The end itself."""

    def __str__(self) -> str:
        end = "lower" if self.side == "low" else "upper"
        return f"{self.dimension} at its {end} end {self.bound:g}"

    @property
    def text(self) -> str:
        """The text, with a mark if the best trial itself is not there."""
        return str(self) if self.verdict == "edge" else f"{self} (near-best)"


def edge(
    space: str | Mapping[str, Any],
    best: Mapping[str, Any],
    near_best: Sequence[Mapping[str, Any]] = (),
    *,
    budget_steps: float | None = None,
) -> list[Edge]:
    """The ends of the dimensions of ``space`` on which the optimum sits; empty where there is none.

    Args:
        space: the study's search space, JSON text or a mapping, as
            ``{"learning_rate": {"log": [1e-4, 10]}, …}``. Fixed values and discrete choices have
            no edge, and neither has a linear or integer dimension at 0.
        best: the metaparameters of the best trial, as resolved.
        near_best: those of trials nearly as good.
        budget_steps: the budget of which a length (of a decay, of warmup) is a share.
    """
    parsed = mapping(space, "search_space") if isinstance(space, str) else space
    edges: list[Edge] = []
    verdict: Literal["edge", "near"]
    for name, dimension in parsed.items():
        if not isinstance(dimension, Mapping) or len(dimension) != 1:
            continue
        ((scale, bounds),) = dimension.items()
        if scale not in _UNIT:
            continue
        first, *others = (
            _place(name, scale, bounds, trial, budget_steps) for trial in (best, *near_best)
        )
        if first is None:
            continue
        places = [first, *(place for place in others if place is not None)]
        low, high = float(bounds[0]), float(bounds[1])
        # A length that is a share of the budget cannot be longer than the budget.
        whole_budget = name not in best and name + _STEPS in best and high == 1.0
        if min(places) < MARGIN and (scale, low) not in _NATURAL:
            verdict = "edge" if first < MARGIN else "near"
            edges.append(Edge(dimension=name, side="low", bound=low, verdict=verdict))
        if max(places) > 1 - MARGIN and not whole_budget:
            verdict = "edge" if first > 1 - MARGIN else "near"
            edges.append(Edge(dimension=name, side="high", bound=high, verdict=verdict))
    return edges


def near_best(
    steps: Sequence[float | None], metaparameters: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Those of the trials whose steps to target are within ``NEAR`` of the least, best first."""
    hits = [
        (float(value), i) for i, value in enumerate(steps) if value is not None and value == value
    ]
    least = min((value for value, _ in hits), default=math.inf)
    return [metaparameters[i] for value, i in sorted(hits) if value <= NEAR * least]


def spaces(studies: pd.DataFrame) -> dict[str, str]:
    """Each study's search space, of its latest row: where it was enlarged, the larger one."""
    with_space = studies[studies["search_space"].notna()]
    with_space = by_age(with_space)
    return dict(zip(with_space["study"], with_space["search_space"], strict=True))


def scaled_dimensions(space: str) -> int:
    """How many dimensions of a search space have a scale: fixed values and choices have none."""
    tuned = [each for each in mapping(space, "search_space").values() if isinstance(each, Mapping)]
    return sum(scale in _UNIT for each in tuned for scale in each)


def of_best(
    space: str, runs: Runs, rows: Rows, trial: str, best: Mapping[str, Any]
) -> tuple[Edge, ...]:
    """The edges of the ``trial`` that is the best of the trials ``rows`` of one study, with the
    metaparameters ``best``, and of the near-best ones."""
    hits = rows[runs.steps[rows] <= runs.cutoff(rows, runs.kept(rows))]
    near = near_best(
        runs.steps[hits].tolist(), [parameters(text) for text in runs.rows["metaparameters"][hits]]
    )
    place = rows[runs.rows["trial"][rows] == trial][0]
    phases = BatchPhases.of(runs.rows["batch_sizes"][place])
    budget = phases.schedule_steps if phases else number(runs.rows["budget_steps"][place])
    return tuple(edge(space, best, near, budget_steps=budget))


def notes(edges: Iterable[tuple[int, Sequence[Edge]]]) -> list[Note]:
    """One for each end of a dimension on which an optimum sits, or a near-best trial, from
    each batch size and its edges."""
    places: dict[tuple[str, str], list[int]] = {}
    for batch_size, sides in edges:
        for side in sides:
            code = "edge" if side.verdict == "edge" else "near_edge"
            places.setdefault((code, str(side)), []).append(batch_size)
    in_order = sorted(places.items(), key=lambda item: item[0][0])
    return [Note(code, end=end, at=batch_sizes) for (code, end), batch_sizes in in_order]


def _place(
    name: str,
    scale: str,
    bounds: Sequence[float],
    metaparameters: Mapping[str, Any],
    budget_steps: float | None,
) -> float | None:
    """The place of a trial in a dimension's unit interval; None if it has no such number."""
    value = metaparameters.get(name)
    if value is None and budget_steps:
        steps = metaparameters.get(name + _STEPS)
        value = None if steps is None else steps / budget_steps
    if value is None or isinstance(value, (str, bool)):
        return None
    return _UNIT[scale](float(value), float(bounds[0]), float(bounds[1]))


_UNIT = {
    "linear": lambda x, low, high: (x - low) / (high - low),
    "integer": lambda x, low, high: (x - low + 0.5) / (high - low + 1),
    "log": lambda x, low, high: math.log(x / low) / math.log(high / low),
    "reverse_log": lambda x, low, high: (
        math.log((1 - x) / (1 - low)) / math.log((1 - high) / (1 - low))
    ),
}
"""From a value of each scale, and the ends of its dimension, to the unit interval."""
