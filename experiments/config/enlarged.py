"""A study's search space made larger where its optimum sits on an edge, and the new trials in it.

What is added is searched as densely as the space it is added to: points are drawn over the whole
of the enlarged box, from a table of its own, and those inside the old one are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import workloads
from experiments import identity, optimizers
from experiments.plan import Trial, Value
from experiments.search import ENLARGEABLE, table
from experiments.search.domains import domain_of
from experiments.search.space import Dimension, Side
from experiments.seeds import derive
from workloads import WorkloadError

if TYPE_CHECKING:
    from experiments.config.plans import StudyPlan

Box = Mapping[str, Dimension]

_DRAWN_AT_MOST = 4
"""Times the trials wanted: how many an enlargement may add."""
_BLOCK = 1_000_000
"""Indices of enlargement k begin at k times this, so that they do not move with the trials."""
_OCCURRENCES = 1_000_000_000
"""A point that falls together with one inside, once resolved, is another trial."""


@dataclass(frozen=True, kw_only=True)
class Enlarged:
    """A study's space after some enlargements, and the trials that the last of them adds."""

    plan: StudyPlan
    number: int
    """How many enlargements: 1 for the first."""
    sides: tuple[tuple[str, Side], ...]
    """Those of the asked ones that could be moved."""
    space: Box
    trials: tuple[Trial, ...]
    """In the order of their table; role "extension", ``enlargement`` the number."""

    @property
    def search_space(self) -> dict[str, Any]:
        """The tuned ranges, as an experiment file writes them."""
        return {name: dimension.notation() for name, dimension in self.space.items()}

    def enlarged(self, sides: Sequence[tuple[str, Side]]) -> Enlarged | None:
        """Once more; ``None`` where none of ``sides`` can be moved."""
        return enlarge(self.plan, self.space, sides, self.number + 1)


def enlarge(
    plan: StudyPlan, space: Box, sides: Sequence[tuple[str, Side]], number: int
) -> Enlarged | None:
    """``space`` with ``sides`` moved out, each by the range's own size (``Dimension.extended``).

    N · (V_new - V_old) / V_first trials are added, where N are the study's and V is the volume in
    the scales' own measure; at most 4 N.

    Returns:
        ``None`` where none of the sides can be moved, or the method draws no further points.

    Raises:
        KeyError: a side of what is not tuned.
    """
    box, moved = dict(space), []
    for name, side in dict.fromkeys(sides):
        grown = _extended(plan, name, space[name], side)
        if grown is None:
            continue
        low, high = box[name].bounds
        ends = (grown.bounds[0], high) if side == "low" else (low, grown.bounds[1])
        box[name] = replace(box[name], bounds=ends)
        moved.append((name, side))
    if not moved or plan.study.search not in ENLARGEABLE:
        return None
    added = _volume(box, plan.space) - _volume(space, plan.space)
    wanted = plan.study.trials
    count = min(math.ceil(wanted * added - 1e-9), _DRAWN_AT_MOST * wanted)
    return Enlarged(
        plan=plan,
        number=number,
        sides=tuple(moved),
        space=box,
        trials=tuple(_trials(plan, _outside(plan, space, box, number, count), number)),
    )


def _extended(plan: StudyPlan, name: str, dimension: Dimension, side: Side) -> Dimension | None:
    whole = dimension.scale == "integer"
    domain = domain_of(name, dimension.bounds[0], plan.schedule.domains, whole=whole)
    grown = dimension.extended(side, domain)
    return grown if grown is not None and _allowed(plan, name, grown) else None


def _allowed(plan: StudyPlan, name: str, grown: Dimension) -> bool:
    """Whether the workload takes both ends, where ``name`` is a field of it."""
    study, ref = plan.study, plan.study.workload
    optimizer = optimizers.get(study.optimizer, ref.base)
    if name in optimizer.arguments | plan.schedule.arguments:
        return True
    try:
        for end in grown.bounds:
            workloads.load(ref.spec, {**ref.fields, name: end}, ref.base)
    except WorkloadError:
        return False
    return True


def _volume(box: Box, unit: Box) -> float:
    return math.prod(box[name].extent / unit[name].extent for name in unit)


def _outside(
    plan: StudyPlan, inner: Box, box: Box, number: int, count: int
) -> Iterator[Mapping[str, Value]]:
    """The first ``count`` rows of the box's own table that do not lie in ``inner``."""
    study = plan.study
    seed = derive(plan.seed, study.id, "enlarge", number)
    drawn, start = table(study.search, box, seed, study.trials), 0
    while count:
        for row in drawn.rows(start, start + study.trials):
            if count and not all(inner[name].holds(value) for name, value in row.items()):
                count -= 1
                yield row
        start += study.trials


def _trials(plan: StudyPlan, rows: Iterator[Mapping[str, Value]], number: int) -> Iterator[Trial]:
    first = number * max(_BLOCK, plan.max_rows)
    occurrences: Counter[str] = Counter()
    for i, row in enumerate(rows):
        values = plan.resolved(row)
        point = identity.canonical(values)
        occurrence = number * _OCCURRENCES + occurrences[point]
        occurrences[point] += 1
        trial = plan.made(values, occurrence, index=first + i)
        yield replace(trial, role="extension", enlargement=number)
