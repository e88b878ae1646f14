"""A study and the trials that its table holds, in the space of the file and in enlarged ones.

What an enlargement adds is searched as densely as the space it is added to: points are drawn over
the whole of the enlarged box, from a table of its own, and those inside the old one are left out.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import workloads
from experiments import identity, optimizers, schedules
from experiments.factors.rule import Rule
from experiments.identity import TrialIds
from experiments.optimizers import Optimizer
from experiments.plan import REPEATS_FROM, Role, Study, Trial, Value
from experiments.schedules import Schedule
from experiments.search import DRAWN_AT_MOST, METHODS, Table, max_rows, table
from experiments.search.domains import domain_of
from experiments.search.space import Dimension, Side
from experiments.seeds import derive
from workloads import WorkloadError

Box = Mapping[str, Dimension]

_BLOCK = 1_000_000
"""Indices of enlargement k begin at k times this, so that they do not move with the trials."""
_OCCURRENCES = 1_000_000_000
"""First count of a point of an enlargement that, once resolved, equals a point of the old space: it
is another trial."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study and the table that its trials are rows of."""

    study: Study
    identity: Mapping[str, Any]
    """What the study's id hashes (``experiments.identity.study_identity``)."""
    space: Box
    """What is tuned, in alphabetical order: one column of the table each."""
    fixed: Mapping[str, Value]
    """Metaparameters of one value."""
    points: tuple[Mapping[str, Value], ...] = ()
    """The rows of the table, where they are given by hand."""
    tokens_per_example: int | None = None
    """The workload's, by which lengths in tokens become steps."""
    rule: Rule | None = None
    """What derives metaparameters from those of the table."""
    table_from: str | None = None
    """The id of the study whose table it is; ``None``: its own."""
    baseline: tuple[str, ...] = ()
    """Ids of the studies of whose steps to target lengths are shares."""

    @property
    def waits(self) -> bool:
        """Whether these steps are not known yet: its lengths are not, and its trials are none."""
        return bool(self.baseline) and self.study.baseline_steps is None

    @property
    def max_rows(self) -> int:
        """Rows that may be drawn to find the trials wanted."""
        most, size = max_rows(self.study.search, self.study.trials), self._table.size
        return most if size is None else min(size, most)

    @property
    def search_space(self) -> dict[str, Any]:
        """The tuned ranges, as an experiment file writes them."""
        return self.notation(self.space)

    def notation(self, space: Box) -> dict[str, Any]:
        """Ranges as an experiment file writes them; lengths in examples or tokens are in steps, as
        trials hold them."""
        ranges = {
            self.schedule.amounts.get(name, name): self._in_steps(name, dimension)
            for name, dimension in space.items()
        }
        if self.rule is not None:
            size, tokens = self.study.batch_size, self.tokens_per_example
            fixed = {**self.optimizer.defaults, **self.fixed}
            effective = self.optimizer.effective_learning_rate
            ranges = self.rule.ranges(ranges, size, fixed, tokens, effective)
        return {name: dimension.notation() for name, dimension in ranges.items()}

    def _in_steps(self, name: str, dimension: Dimension) -> Dimension:
        if name not in self.schedule.amounts:
            return dimension
        step = self.schedule.amount_of_step(name, self.study.batch_size, self.tokens_per_example)
        low, high = (end / step for end in dimension.bounds)
        choices = tuple(float(value) / step for value in dimension.choices)
        scale = "linear" if dimension.scale == "integer" else dimension.scale
        return Dimension(scale=scale, bounds=(low, high), choices=choices)

    def trials(self, start: int, stop: int) -> list[Trial]:
        """Rows ``start`` … ``stop - 1`` of the table, fewer beyond ``max_rows``; role "search".

        A row is the same trial whatever other rows are drawn, and however many are wanted.
        """
        stop = min(stop, self.max_rows)
        drawn, occurrences = self._drawn
        for row in self._table.rows(len(drawn), stop):
            values = self.resolved(row)
            point = identity.canonical(values)
            drawn.append(self.made(values, occurrences[point], index=len(drawn), point=point))
            occurrences[point] += 1
        return drawn[start:stop]

    def trial(self, index: int, role: Role = "search", round: int = 0) -> Trial:
        """Row ``index`` of the table.

        Raises:
            IndexError: it is beyond ``max_rows``.
        """
        return replace(self.trials(index, index + 1)[0], role=role, round=round)

    def repeats(self, trial: Trial) -> list[Trial]:
        """The trial's metaparameters again, with as many fresh seeds as the study repeats.

        Trials of one point have the same repeats. In their identity the count of the point's
        trials is negative, where it is never one of the search.
        """
        return [
            replace(
                self.made(trial.metaparameters, -1 - copy, index=trial.index),
                index=(copy + 1) * REPEATS_FROM + trial.index,
                enlargement=trial.enlargement,
                role="repeat",
            )
            for copy in range(self.study.repeats)
        ]

    def enlarged(self, sides: Sequence[tuple[str, Side]], number: int = 1) -> Enlarged | None:
        """The space with each of ``sides`` moved out, and the trials of what that adds.

        A further enlargement is made from the one before it: ``Enlarged.enlarged``.

        Args:
            sides: dimensions and the ends at which the optimum sits:
                ``[("learning_rate", "low")]``, named as in ``search_space``.

        Returns:
            ``None`` where none of them can be moved.
        """
        return enlarge(self, self.space, sides, number)

    def resolved(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """A row of the table and what is fixed, by the rule and with lengths in steps."""
        schedule, size, tokens = self.schedule, self.study.batch_size, self.tokens_per_example
        values = {**self.fixed, **row}
        if self.rule is not None:
            defaults, effective = self.optimizer.defaults, self.optimizer.effective_learning_rate
            values = self.rule.applied(values, size, defaults, tokens, effective)
        timed = {n: v for n, v in values.items() if n in schedule.arguments}
        rest = {n: v for n, v in values.items() if n not in schedule.arguments}
        lengths = schedule.resolve(timed, self.study.schedule_steps, size, tokens)
        return dict(sorted({**rest, **lengths}.items()))

    def made(
        self, values: Mapping[str, Value], occurrence: int, *, index: int, point: str | None = None
    ) -> Trial:
        """The trial of a point that ``occurrence`` trials before it have too.

        Args:
            point: the values in canonical form, if the caller has it.
        """
        name = self._ids.id(
            point or identity.canonical(values), (self.study.search_seed, occurrence)
        )
        return Trial(
            id=name,
            index=index,
            seed=derive(self.study.search_seed, self.study.id, name),
            metaparameters=values,
        )

    @functools.cached_property
    def optimizer(self) -> Optimizer:
        """The study's optimizer."""
        return optimizers.get(self.study.optimizer, self.study.workload.base)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The study's schedule."""
        return schedules.get(self.study.schedule, self.study.workload.base)

    @functools.cached_property
    def _ids(self) -> TrialIds:
        return TrialIds(self.identity)

    @functools.cached_property
    def _table(self) -> Table:
        study = self.study
        seed = derive(study.search_seed, self.table_from or study.id, "search")
        return table(study.search, self.space, seed, study.trials, self.points)

    @functools.cached_property
    def _drawn(self) -> tuple[list[Trial], Counter[str]]:
        """The trials drawn so far, and how often each point occurs among them."""
        return [], Counter()


@dataclass(frozen=True, kw_only=True)
class Enlarged:
    """A study's space after some enlargements, and the trials that the last of them adds."""

    plan: StudyPlan
    number: int
    """How many enlargements: 1 for the first."""
    sides: tuple[tuple[str, Side], ...]
    """The requested sides that could be moved."""
    space: Box
    trials: tuple[Trial, ...]
    """The added trials in the order of their table, with role "extension" and the number as
    ``enlargement``."""

    @property
    def search_space(self) -> dict[str, Any]:
        """The tuned ranges, as an experiment file writes them."""
        return self.plan.notation(self.space)

    def enlarged(self, sides: Sequence[tuple[str, Side]]) -> Enlarged | None:
        """The next enlargement; ``None`` if none of ``sides`` can be moved."""
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
    box, moved, schedule = dict(space), [], plan.schedule
    names = {schedule.amounts.get(name, name): name for name in space}
    domains = {**plan.optimizer.domains, **schedule.domains}
    for name, side in dict.fromkeys((names[name], side) for name, side in sides):
        whole = space[name].scale == "integer"
        domain = domain_of(name, space[name].bounds[0], domains, whole=whole)
        grown = space[name].extended(side, domain)
        if grown is not None and _allowed(plan, name, grown):
            low, high = box[name].bounds
            ends = (grown.bounds[0], high) if side == "low" else (low, grown.bounds[1])
            box[name] = replace(box[name], bounds=ends)
            moved.append((name, side))
    if not moved or METHODS[plan.study.search].not_enlargeable:
        return None
    added = _volume(box, plan.space) - _volume(space, plan.space)
    wanted = plan.study.trials
    count = min(math.ceil(wanted * added - 1e-9), DRAWN_AT_MOST * wanted)
    return Enlarged(
        plan=plan,
        number=number,
        sides=tuple(moved),
        space=box,
        trials=tuple(_added(plan, space, box, number, count)),
    )


def _allowed(plan: StudyPlan, name: str, grown: Dimension) -> bool:
    """Whether the workload takes both ends, where ``name`` is a field of it."""
    ref = plan.study.workload
    if name in plan.optimizer.arguments | plan.schedule.arguments:
        return True
    try:
        for end in grown.bounds:
            workloads.load(ref.spec, {**ref.fields, name: end}, ref.base)
    except WorkloadError:
        return False
    return True


def _volume(box: Box, unit: Box) -> float:
    return math.prod(box[name].extent / unit[name].extent for name in unit)


def _added(plan: StudyPlan, inner: Box, box: Box, number: int, count: int) -> Iterator[Trial]:
    """Trials of the first ``count`` rows of the box's own table that do not lie in ``inner``."""
    study, first = plan.study, number * max(_BLOCK, plan.max_rows)
    seed = derive(study.search_seed, study.id, "enlarge", number)
    drawn = table(study.search, box, seed, study.trials)
    outside = (
        row
        for start in itertools.count(0, study.trials)
        for row in drawn.rows(start, start + study.trials)
        if not all(inner[name].holds(value) for name, value in row.items())
    )
    occurrences: Counter[str] = Counter()
    for i, row in enumerate(itertools.islice(outside, count)):
        values = plan.resolved(row)
        point = identity.canonical(values)
        occurrence = number * _OCCURRENCES + occurrences[point]
        occurrences[point] += 1
        trial = plan.made(values, occurrence, index=first + i)
        yield replace(trial, role="extension", enlargement=number)
