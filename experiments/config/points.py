"""``points:``, metaparameters by hand: one list for all optimizers of the grid, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.config.tuning import Entries, check_value
from experiments.config.yaml_lines import Path, dotted
from experiments.errors import nearest
from experiments.identity import canonical
from experiments.optimizers import Optimizer
from experiments.plan import Value
from experiments.schedules import Schedule
from experiments.search.space import Dimension

if TYPE_CHECKING:
    from experiments.config.experiment import Experiment

Point = dict[str, Value]
_EXAMPLE = "for example: points: [{learning_rate: 0.1, momentum: 0.9}]"


class HandPicked:
    """The points of an experiment, checked.

    Raises:
        ExperimentError: no list of mappings, a name that nothing in the grid has, a value that its
            name cannot have, a point said twice, an optimizer without points.
    """

    def __init__(
        self,
        experiment: Experiment,
        used: Sequence[Optimizer],
        plans: Sequence[Schedule],
        fields: Sequence[str],
    ) -> None:
        self._experiment, self._fields = experiment, frozenset(fields)
        self._plans = plans
        scheduled = frozenset().union(*(s.arguments for s in plans)) | self._fields
        raw, names = experiment.points, [optimizer.name for optimizer in used]
        keys = {key: optimizer for optimizer in used for key in (optimizer.name, optimizer.label)}
        self._lists: dict[str, tuple[Path, list[Point]]] = {}
        if not isinstance(raw, Mapping):
            legal = scheduled.union(*(o.arguments for o in used))
            shared = ("points",), self._checked(raw, ("points",), legal)
            self._lists = dict.fromkeys(names, shared)
            return
        for name, points in raw.items():
            path: Path = ("points", name)
            if name not in keys:
                message = f"points.{name}: no such optimizer in the grid"
                raise experiment.error(path, message, nearest(name, keys))
            optimizer = keys[name]
            if optimizer.name in self._lists:
                message = f"points of {optimizer.name} and of {optimizer.label}, which it is called"
                raise experiment.error(path, message, "keep one of the two")
            checked = self._checked(points, path, optimizer.arguments | scheduled)
            self._lists[optimizer.name] = path, checked
        for optimizer in used:
            if optimizer.name not in self._lists:
                raise experiment.error(("points",), f"points has none for {optimizer.label}")

    @property
    def names(self) -> set[str]:
        """All metaparameters that points give."""
        return {name for _, points in self._lists.values() for point in points for name in point}

    def of(
        self, optimizer: Optimizer, schedule: Schedule, entries: Entries
    ) -> tuple[tuple[Point, ...], dict[str, Any]]:
        """The points of a study, and its search with their values in the place of ranges.

        What this optimizer does not have is left out; points that are the same without it are one.

        Raises:
            ExperimentError: a point that says less than another, or leaves open what is tuned.
        """
        legal = optimizer.arguments | schedule.arguments | self._fields
        path, points = self._lists[optimizer.name]
        said = [name for name in sorted({n for p in points for n in p}) if name in legal]
        tuned = [name for name, entry in entries.items() if isinstance(entry, Dimension)]
        other = schedule.counterpart  # a length is said as a share or in steps
        wanted = [*said, *(name for name in tuned if other(name) not in said)]
        found: dict[str, Point] = {}
        for i, point in enumerate(points):
            missing = [name for name in wanted if name not in point]
            if missing:
                name = missing[0]
                why = f"which {optimizer.label} tunes" if name in tuned else "as others do"
                raise self._experiment.error(
                    (*path, i),
                    f"{dotted((*path, i))} gives no {name}, {why}",
                    f"say it in each point, or fix it for all: search: {{{name}: …}}",
                )
            own = {name: point[name] for name in said}
            found.setdefault(canonical(own), own)
        rest = {n: e for n, e in entries.items() if n not in wanted and other(n) not in said}
        of_points = {name: self._entry(name, list(found.values())) for name in said}
        return tuple(found.values()), dict(sorted({**rest, **of_points}.items()))

    def _entry(self, name: str, points: Sequence[Point]) -> Dimension | Value:
        values = {canonical(point[name]): point[name] for point in points}
        if len(values) == 1 and name not in self._fields:
            return points[0][name]
        return Dimension(scale="discrete", choices=tuple(values.values()))

    def _checked(self, raw: Any, path: Path, legal: frozenset[str]) -> list[Point]:
        experiment = self._experiment
        if not isinstance(raw, (list, tuple)) or not raw:
            raise experiment.error(path, f"{dotted(path)} is not a list of points", _EXAMPLE)
        seen: dict[str, int] = {}
        for i, point in enumerate(raw):
            here: Path = (*path, i)
            if not isinstance(point, Mapping) or not point:
                raise experiment.error(here, f"{dotted(here)}: {point!r} is not a point", _EXAMPLE)
            for name, value in point.items():
                self._check(name, value, (*here, name), legal)
            text = canonical(point)
            if text in seen:
                raise experiment.error(
                    here,
                    f"{dotted(here)} is {dotted((*path, seen[text]))} again",
                    "keep one; repeats: 5 trains the best with fresh seeds",
                )
            seen[text] = i
        return [dict(point) for point in raw]

    def _check(self, name: str, value: Any, path: Path, legal: frozenset[str]) -> None:
        if name not in legal:
            message = f"{dotted(path)}: nothing in the grid has it"
            raise self._experiment.error(path, message, nearest(name, sorted(legal)))
        if not isinstance(value, (bool, int, float, str)):
            hint = "a point has one value of each name; ranges are searched by other methods"
            raise self._experiment.error(path, f"{dotted(path)}: {value!r} is not a value", hint)
        check_value(name, value, self._fields, self._plans, path, self._experiment.places)
