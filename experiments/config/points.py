"""``points:``, metaparameters chosen by hand: one list for all optimizers, or a list for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.canonical import canonical
from experiments.config.grid import Grid
from experiments.config.schema import ExperimentFile
from experiments.config.tuning import Given, check_value, refuse_two_lengths
from experiments.config.yaml_lines import Path, dotted
from experiments.errors import ExperimentError, nearest
from experiments.optimizers import Optimizer
from experiments.schedules import Schedule
from experiments.search.space import Dimension, Value

Point = dict[str, Value]
_EXAMPLE = "for example: points: [{learning_rate: 0.1, momentum: 0.9}]"


class HandPicked:
    """The points of an experiment, checked.

    Raises:
        ExperimentError: no list of mappings, a name that nothing in the grid has, a value that its
            name cannot have, a point given twice, an optimizer without points.
    """

    def __init__(self, file: ExperimentFile, grid: Grid) -> None:
        self._file, self._grid = file, grid
        raw, optimizers, scheduled = file.points, grid.optimizers, grid.scheduled
        self._lists: dict[str, tuple[Path, list[Point]]] = {}
        if not isinstance(raw, Mapping):
            legal = scheduled.union(*(o.arguments for o in optimizers))
            shared = ("points",), self._checked(raw, ("points",), legal)
            self._lists = dict.fromkeys([optimizer.name for optimizer in optimizers], shared)
            return
        by_key = {key: o for o in optimizers for key in (o.name, o.label)}
        for key, points in raw.items():
            path: Path = ("points", key)
            if key not in by_key:
                message = f"points.{key}: no such optimizer in the grid"
                raise file.error(path, message, nearest(key, by_key))
            optimizer = by_key[key]
            if optimizer.name in self._lists:
                message = f"points of {optimizer.name} and of {optimizer.label}, which it is called"
                raise file.error(path, message, "keep one of the two")
            checked = self._checked(points, path, optimizer.arguments | scheduled)
            self._lists[optimizer.name] = path, checked
        for optimizer in optimizers:
            if optimizer.name not in self._lists:
                raise file.error(("points",), f"points has no entry for {optimizer.label}")

    def resolve(
        self, optimizer: Optimizer, schedule: Schedule, entries: Mapping[str, Given]
    ) -> tuple[tuple[Point, ...], dict[str, Given]]:
        """The points of a study, and its search with their values instead of ranges.

        What this optimizer does not have is left out; points that are then equal become one.

        Raises:
            ExperimentError: a point lacks a name that another has, or that is tuned.
        """
        legal = optimizer.arguments.union(schedule.arguments, self._grid.fields)
        path, points = self._lists[optimizer.name]
        given = [name for name in sorted({n for p in points for n in p}) if name in legal]
        tuned = [name for name, each in entries.items() if isinstance(each.entry, Dimension)]

        def is_given(name: str) -> bool:
            """In another form: a length is a share or a number of steps, examples or tokens."""
            return any(form in given for form in schedule.other_forms(name))

        wanted = [*given, *(name for name in tuned if not is_given(name))]
        distinct: dict[str, Point] = {}
        for i, point in enumerate(points):
            if missing := [name for name in wanted if name not in point]:
                name = missing[0]
                why = f"which {optimizer.label} tunes" if name in tuned else "as others do"
                hint = f"give it in each point, or fix it for all: search: {{{name}: …}}"
                message = f"{dotted((*path, i))} gives no {name}, {why}"
                raise self._file.error((*path, i), message, hint)
            row = {name: point[name] for name in given}
            distinct.setdefault(canonical(row), row)
        rest = {n: e for n, e in entries.items() if n not in wanted and not is_given(n)}
        rows = tuple(distinct.values())
        of_points = {name: Given(self._entry(name, rows), path) for name in given}
        return rows, dict(sorted({**rest, **of_points}.items()))

    def _entry(self, name: str, points: Sequence[Point]) -> Dimension | Value:
        values = {canonical(point[name]): point[name] for point in points}
        if len(values) == 1 and name not in self._grid.fields:
            return points[0][name]
        return Dimension(scale="discrete", choices=tuple(values.values()))

    def _checked(self, raw: Any, path: Path, legal: frozenset[str]) -> list[Point]:
        places = self._file.places
        if not isinstance(raw, (list, tuple)) or not raw:
            raise places.error(path, f"{dotted(path)} is not a list of points", _EXAMPLE)
        positions: dict[str, int] = {}
        for i, point in enumerate(raw):
            here: Path = (*path, i)
            with places.errors_at(here, named=True):
                if not isinstance(point, Mapping) or not point:
                    raise ExperimentError(f"{point!r} is not a point", hint=_EXAMPLE)
                refuse_two_lengths(point, self._grid.schedules)
            for name, value in point.items():
                with places.errors_at((*here, name), named=True):
                    self._check(name, value, legal)
            first = positions.setdefault(canonical(point), i)
            if first != i:
                message = f"{dotted(here)} is the same as {dotted((*path, first))}"
                hint = "keep one; repeats: 5 trains the best with fresh seeds"
                raise places.error(here, message, hint)
        return [dict(point) for point in raw]

    def _check(self, name: str, value: Any, legal: frozenset[str]) -> None:
        if name not in legal:
            hint = nearest(name, sorted(legal))
            raise ExperimentError("nothing in the grid has it", hint=hint)
        if not isinstance(value, (bool, int, float, str)):
            hint = "a point has one value of each name; ranges are searched by other methods"
            raise ExperimentError(f"{value!r} is not a value", hint=hint)
        check_value(name, value, self._grid, self._grid.schedules)
