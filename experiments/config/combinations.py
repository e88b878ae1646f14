"""The combinations of a grid: workload fields × schedule × technique × optimizer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

import workloads
from experiments import optimizers, schedules, search
from experiments.config.load import KEY_HINT, holds_key
from experiments.config.points import HandPicked, Point
from experiments.config.schema import ExperimentFile
from experiments.config.tuning import Search
from experiments.config.yaml_lines import Path, dotted
from experiments.errors import ExperimentError, nearest
from experiments.identity import canonical, optimizer_identity, schedule_identity
from experiments.optimizers import Optimizer
from experiments.plan import Precision, Value
from experiments.schedules import Schedule
from experiments.search.space import Dimension
from results.counts import count
from workloads import Workload, WorkloadError

TECHNIQUE = ("precision", "ghost_batch")
_KEYS = ("batch_size", "optimizer", "schedule", *TECHNIQUE)
_MOST_STUDIES = 100_000
_PRECISIONS = get_args(Precision)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One training algorithm on one workload, at any batch size."""

    workload: Workload
    fields: Mapping[str, Any]
    """Fields that the experiment sets."""
    optimizer: Optimizer
    schedule: Schedule
    technique: Mapping[str, Value]
    space: Mapping[str, Dimension]
    fixed: Mapping[str, Value]
    points: tuple[Point, ...] = ()
    """Rows of the search that are chosen by hand."""

    def values(self, u: float) -> dict[str, Value]:
        """What is fixed, and each tuned metaparameter at ``u`` of its range."""
        return {**self.fixed, **{name: space.value(u) for name, space in self.space.items()}}


def combinations(file: ExperimentFile) -> tuple[list[Combination], Search]:
    """All combinations of the grid, and what is tuned in them.

    Raises:
        ExperimentError: an unknown name or value anywhere in the grid or the search.
        WorkloadError: the workload itself is wrong.
    """
    grid = {key: _values(file, key, value) for key, value in file.grid.items()}
    fields = _field_names(file, grid)
    for key in grid:
        if key not in _KEYS and key not in fields:
            hint = nearest(key, [*_KEYS, *fields])
            raise file.error(("grid", key), f"unknown key {key!r} in grid", hint)
    if "optimizer" not in grid:
        message = "grid has no optimizer"
        raise file.error(("grid",), message, "for example: optimizer: [sgd, momentum, adam]")
    in_grid = [
        _load_named(file, ("grid", "optimizer", i), optimizers.get, name)
        for i, name in enumerate(grid["optimizer"])
    ]
    plans = _schedules(file, grid)
    _check_labels(file, in_grid, plans)
    owners: list[Optimizer | Schedule] = [*in_grid, *plans]
    names = [name for owner in owners for name in (owner.name, owner.label)]
    tuned = Search.parse(file.search, names, file.places)
    tuned.check(in_grid, plans, fields, file.base, file.places)
    picked = None if file.points is None else HandPicked(file, in_grid, plans, fields)
    swept = {key: grid[key] for key in grid if key in fields}
    _check_size(file, grid)
    _check_names(file, fields, in_grid, plans, tuned, swept, picked)
    techniques = _techniques(file, grid)
    result = []
    for values in itertools.product(*swept.values()):
        chosen = dict(zip(swept, values, strict=True))
        for schedule, technique, optimizer in itertools.product(plans, techniques, in_grid):
            entries = tuned.resolve(optimizer, schedule, fields)
            points: tuple[Point, ...] = ()
            if picked is not None:
                points, entries = picked.of(optimizer, schedule, entries)
            combination = _combine(file, fields, chosen, optimizer, schedule, technique, entries)
            result.append(replace(combination, points=points))
    _check_ranges(file, result)
    return result, tuned


def _check_ranges(file: ExperimentFile, combinations: Sequence[Combination]) -> None:
    """There must be as many ranges as the method of search needs."""
    method = file.search_method
    for combination in combinations:
        ranges = [name for name, entry in combination.space.items() if entry.scale != "discrete"]
        if len(ranges) < (least := search.METHODS[method].least_ranges):
            raise file.error(
                ("method",),
                f"method {method} needs {least} ranges: {combination.optimizer.label} tunes "
                f"{' and '.join(ranges) or 'nothing'} alone",
                "method: optuna:tpe, or tune more",
            )


def _check_size(file: ExperimentFile, grid: Mapping[str, Sequence[Any]]) -> None:
    """Before any combination is made."""
    sizes = {key: len(values) for key, values in grid.items()}
    sizes["batch_size"] = len(file.batch_sizes)
    if (studies := math.prod(sizes.values())) > _MOST_STUDIES:
        product = " × ".join(f"{size:,} {key}" for key, size in sizes.items() if size > 1)
        raise file.error(
            ("grid",),
            f"the grid has {count(studies, 'study')}: {product}",
            f"at most {_MOST_STUDIES:,}: sweep parts of it one after the other",
        )


def _field_names(file: ExperimentFile, grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """Names of the workload's fields."""
    try:
        return list(workloads.load(file.workload, {}, file.base).fields)
    except WorkloadError as error:
        if "needs a value" not in str(error):
            raise file.error(("workload",), str(error), error.hint) from None
    swept = {key: values[0] for key, values in grid.items() if key not in _KEYS}
    return list(_load(file, swept, None).fields)


def _values(file: ExperimentFile, key: str, value: Any) -> Sequence[Any]:
    """The values of a key of the grid: a lone one is a list of one."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if key == "batch_size":
        return values
    path = ("grid", key)
    if not values:
        raise file.error(path, f"grid.{key} is an empty list", "leave the key out")
    seen: set[str] = set()
    for i, item in enumerate(values):
        if item is None or isinstance(item, Mapping):
            raise file.error(
                (*path, i),
                f"grid.{key}: {item!r} is not a value",
                "what is tuned is written below search:",
            )
        try:
            text = canonical(item)
        except ExperimentError:
            raise file.error((*path, i), f"grid.{key}: {item!r} is not a value") from None
        if text in seen:
            raise file.error((*path, i), f"grid.{key}: {item!r} is given twice", "keep one")
        seen.add(text)
    return values


def _load_named(file: ExperimentFile, path: Path, get: Callable[[str, str], T], name: Any) -> T:
    if not isinstance(name, str):
        raise file.error(path, f"{path[-2]} {name!r} is not a name")
    try:
        return get(name, file.base)
    except ExperimentError as error:
        raise file.error(path, str(error), error.hint) from None


def _check_labels(
    file: ExperimentFile, in_grid: Sequence[Optimizer], plans: Sequence[Schedule]
) -> None:
    """An optimizer or a schedule is in the grid once, and no two have the same label."""
    owners: list[tuple[Path, Optimizer | Schedule, Any]] = [
        (("grid", "optimizer", i), optimizer, optimizer_identity(optimizer, file.base))
        for i, optimizer in enumerate(in_grid)
    ]
    owners += [
        ((*file.path_of("schedule"), i), schedule, schedule_identity(schedule, file.base))
        for i, schedule in enumerate(plans)
    ]
    labels: dict[str, Optimizer | Schedule] = {}
    identities: dict[str, Optimizer | Schedule] = {}
    for path, owner, identity in owners:
        name, label = owner.name, owner.label
        same = identities.setdefault(canonical(identity), owner)
        namesake = labels.setdefault(label, owner)
        hint = f"give it another name: {name} as {label}-2"
        if same is not owner:
            message, hint = f"{label} is {same.label}, which is there already", "keep one"
        elif namesake is not owner:
            message = f"{namesake.name} and {name} are both called {label}"
        elif label in {*optimizers.names(), *schedules.names()} and label != name:
            message = f"{name} is called {label}, which is something else"
        else:
            continue
        raise file.error(path, f"{dotted(path[:-1])}: {message}", hint)


def _schedules(file: ExperimentFile, grid: Mapping[str, Sequence[Any]]) -> list[Schedule]:
    if "schedule" in grid:
        _check_once(file, "schedule")
    path = file.path_of("schedule")
    return [
        _load_named(file, (*path, i), schedules.get, name)
        for i, name in enumerate(grid.get("schedule", [file.schedule]))
    ]


def _check_once(file: ExperimentFile, key: str) -> None:
    """A key of the grid must not be given beside it too."""
    if key in file.model_fields_set:
        message = f"{key} is in the grid and beside it"
        raise file.error(("grid", key), message, "keep one of the two")


def _techniques(file: ExperimentFile, grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Value]]:
    axes: dict[str, Sequence[Any]] = {}
    for key in TECHNIQUE:
        if key not in grid:
            if getattr(file, key) is not None:
                axes[key] = [getattr(file, key)]
            continue
        _check_once(file, key)
        axes[key] = grid[key]
        for i, value in enumerate(grid[key]):
            path = ("grid", key, i)
            if key == "precision" and value not in _PRECISIONS:
                hint = nearest(str(value), _PRECISIONS)
                raise file.error(path, f"unknown precision {value!r}", hint)
            if key == "ghost_batch" and (not isinstance(value, int) or value < 1):
                message = f"ghost_batch {value!r} is not a whole number of at least 1"
                raise file.error(path, message)
    for i, ghost in enumerate(axes.get("ghost_batch", ())):
        if file.micro_batch and file.micro_batch % ghost:
            raise file.error(
                (*file.path_of("ghost_batch"), i),
                f"ghost_batch {ghost} does not divide micro_batch {file.micro_batch}",
                "a micro-batch is made of whole ghost batches",
            )
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _check_names(
    file: ExperimentFile,
    fields: Sequence[str],
    in_grid: Sequence[Optimizer],
    plans: Sequence[Schedule],
    tuned: Search,
    swept: Mapping[str, Any],
    picked: HandPicked | None,
) -> None:
    """A name must mean one thing: a field of the workload, an argument, swept or tuned."""
    for schedule, optimizer in itertools.product(plans, in_grid):
        for name in sorted(optimizer.arguments & schedule.own):
            raise file.error(
                (*file.path_of("schedule"), plans.index(schedule)),
                f"schedule {schedule.label} and optimizer {optimizer.label} both have an argument "
                f"{name!r}",
                "rename the argument in your file",
            )
    arguments = {o.label: o.arguments for o in in_grid} | {s.label: s.arguments for s in plans}
    for owner, legal in arguments.items():
        for name in sorted(legal.intersection(fields)):
            raise file.error(
                ("workload",),
                f"field {name!r} of the workload has the name of an argument of {owner}",
                "rename the field",
            )
    paths: set[tuple[str, ...]] = {(name,) for name in tuned.general}
    paths |= {(section, name) for section, entries in tuned.sections.items() for name in entries}
    for path in sorted(paths):
        if path[-1] in swept:
            message = f"{path[-1]} is in the grid and in search"
            raise file.error(("search", *path), message, "keep one of the two")
    for name in sorted(picked.names.intersection(swept) if picked else ()):
        message = f"{name} is in the grid and in points"
        raise file.error(("grid", name), message, "keep one of the two")


def _combine(
    file: ExperimentFile,
    field_names: Sequence[str],
    swept: Mapping[str, Any],
    optimizer: Optimizer,
    schedule: Schedule,
    technique: Mapping[str, Value],
    entries: Mapping[str, Any],
) -> Combination:
    space = {n: e for n, e in entries.items() if isinstance(e, Dimension)}
    fixed = {n: e for n, e in entries.items() if n not in space}
    fields = {**swept, **{n: e for n, e in fixed.items() if n in field_names}}
    workload = _load(file, fields, optimizer)
    for name, value in workload.fields.items():
        if holds_key(value):
            message = f"field {name!r} of workload {workload.name} holds a key"
            raise file.error(("workload",), message, KEY_HINT)
    for name in set(field_names).intersection(space):  # the field must take all choices, both ends
        for value in space[name].levels(2):
            _load(file, {**fields, name: value}, optimizer)
    return Combination(
        workload=workload,
        fields=fields,
        optimizer=optimizer,
        schedule=schedule,
        technique=technique,
        space=space,
        fixed={n: e for n, e in fixed.items() if n not in field_names},
    )


def _load(file: ExperimentFile, fields: Mapping[str, Any], optimizer: Optimizer | None) -> Workload:
    """The workload with these fields; an error stands where the field was given."""
    try:
        return workloads.load(file.workload, fields, file.base)
    except WorkloadError as error:
        named = [name for name in fields if f"field {name!r}" in str(error)]
        path: Path = ("grid", named[0]) if named else ("workload",)
        if named and named[0] not in file.grid:
            path = ("search", named[0])
            for key in (optimizer.name, optimizer.label) if optimizer else ():
                section = file.search.get(key)
                if isinstance(section, Mapping) and named[0] in section:
                    path = ("search", key, named[0])
            path = path if file.points is None else ("points",)
        raise file.error(path, str(error), error.hint) from None
