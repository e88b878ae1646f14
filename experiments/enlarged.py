"""A study's space with its ends moved out, and the trials of what that adds.

What an enlargement adds is searched as densely as the space it is added to: points are drawn over
the whole of the enlarged box, from a table of its own, and those inside the old one are left out.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import workloads
from experiments.canonical import canonical
from experiments.plan import Study, Trial
from experiments.search import DRAWN_AT_MOST, METHODS, table
from experiments.search.base import Space
from experiments.search.domains import domain_of
from experiments.search.space import Dimension, Side
from experiments.seeds import derive

_BLOCK = 1_000_000
"""Indices of enlargement k begin at k times this, so that they do not move with the trials."""
_OCCURRENCES = 1_000_000_000
"""First count of a point of an enlargement that, once resolved, equals a point of the old space: it
is another trial."""


class Enlarged(NamedTuple):
    """A study's space after some enlargements, and the trials that the last of them adds."""

    space: Space
    trials: tuple[Trial, ...]
    """In the order of their table, with role "extension" and the number of enlargements."""


def enlarge(
    study: Study, space: Space, sides: Sequence[tuple[str, Side]], number: int = 1
) -> Enlarged | None:
    """``space`` with ``sides`` moved out, each by the range's own size (``Dimension.extended``).

    N · (V_new - V_old) / V_first trials are added, where N are the study's and V is the volume in
    the scales' own measure; at most 4 N.

    Args:
        space: the study's, or that of the enlargement before.
        sides: dimensions and the ends at which the optimum sits: ``[("learning_rate", "low")]``,
            named as trials name them.
        number: how many enlargements there are with this one.

    Returns:
        ``None`` where none of the sides can be moved, or the method draws no further points.

    Raises:
        KeyError: a side of what is not tuned.
    """
    (optimizer, schedule), box = study.algorithm, dict(space)
    names = {schedule.amounts.get(name, name): name for name in space}
    domains = {**optimizer.domains, **schedule.domains}
    for name, side in dict.fromkeys((names[name], side) for name, side in sides):
        whole = space[name].scale == "integer"
        domain = domain_of(name, space[name].bounds[0], domains, whole=whole)
        grown = space[name].extended(side, domain)
        if grown is not None and _allowed(study, name, grown):
            low, high = box[name].bounds
            ends = (grown.bounds[0], high) if side == "low" else (low, grown.bounds[1])
            box[name] = replace(box[name], bounds=ends)
    if box == space or METHODS[study.search.method].not_enlargeable:
        return None
    added = _volume(box, study.search.space) - _volume(space, study.search.space)
    count = min(math.ceil(study.trials * added - 1e-9), DRAWN_AT_MOST * study.trials)
    return Enlarged(box, tuple(_added(study, space, box, number, count)))


def _allowed(study: Study, name: str, grown: Dimension) -> bool:
    """Whether the workload takes both ends, where ``name`` is a field of it."""
    if any(name in owner.arguments for owner in study.algorithm):
        return True
    ref = study.workload
    try:
        for end in grown.bounds:
            workloads.load(ref.spec, {**ref.fields, name: end}, ref.base)
    except workloads.WorkloadError:
        return False
    return True


def _volume(box: Space, unit: Space) -> float:
    return math.prod(box[name].extent / unit[name].extent for name in unit)


def _added(study: Study, inner: Space, box: Space, number: int, count: int) -> Iterator[Trial]:
    """Trials of the first ``count`` rows of the box's own table that do not lie in ``inner``."""
    first, wanted = number * max(_BLOCK, study.max_rows), study.trials
    seed = derive(study.search.seed, study.id, "enlarge", number)
    drawn = table(study.search.method, box, seed, wanted)
    outside = (
        row
        for start in itertools.count(0, wanted)
        for row in drawn.rows(start, start + wanted)
        if not all(inner[name].holds(value) for name, value in row.items())
    )
    occurrences: Counter[str] = Counter()
    for i, row in enumerate(itertools.islice(outside, count)):
        values = study.resolved(row)
        point = canonical(values)
        occurrence = number * _OCCURRENCES + occurrences[point]
        occurrences[point] += 1
        trial = study.made(values, occurrence, index=first + i, point=point)
        yield replace(trial, role="extension", enlargement=number)
