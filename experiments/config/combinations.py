"""The combinations of a grid: workload fields × schedule × technique × optimizer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import workloads
from experiments import optimizers, schedules, techniques
from experiments.config.plain import WRITTEN, holds_key
from experiments.config.points import HandPicked, Point
from experiments.config.tuning import Search
from experiments.config.yaml_lines import Path, dotted
from experiments.errors import ExperimentError, nearest
from experiments.identity import canonical, optimizer_identity, schedule_identity
from experiments.optimizers import Optimizer
from experiments.plan import Value
from experiments.schedules import Schedule
from experiments.search.space import Dimension
from experiments.techniques import SETTINGS
from results.counts import count
from workloads import Workload, WorkloadError

if TYPE_CHECKING:
    from experiments.config.file import Experiment

_KEYS = ("batch_size", "optimizer", "schedule", "technique", *SETTINGS)
_MOST_STUDIES = 100_000
_PRECISIONS = ("float32", "float64", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One training algorithm on one workload, at any batch size."""

    workload: Workload
    fields: Mapping[str, Any]
    """Fields that the experiment sets."""
    optimizer: Optimizer
    schedule: Schedule
    technique: Mapping[str, Any]
    space: Mapping[str, Dimension]
    fixed: Mapping[str, Value]
    points: tuple[Point, ...] = ()
    """Rows of the search by hand, in the place of drawn ones."""


def combinations(experiment: Experiment) -> tuple[list[Combination], Search]:
    """All combinations of the grid, and what is tuned in them.

    Raises:
        ExperimentError: an unknown name or value anywhere in the grid or the search.
        WorkloadError: the workload itself is wrong.
    """
    grid = {key: _values(experiment, key, value) for key, value in experiment.grid.items()}
    names = _field_names(experiment, grid)
    for key in grid:
        if key not in _KEYS and key not in names:
            hint = nearest(key, [*_KEYS, *names])
            raise experiment.error(("grid", key), f"unknown key {key!r} in grid", hint)
    if "optimizer" not in grid:
        raise experiment.error(
            ("grid",), "grid names no optimizer", "for example: optimizer: [sgd, momentum, adam]"
        )
    used = [
        _named(experiment, ("grid", "optimizer", i), optimizers.get, name, experiment.base)
        for i, name in enumerate(grid["optimizer"])
    ]
    plans = _schedules(experiment, grid)
    _check_labels(experiment, used, plans)
    named = [name for owner in (*used, *plans) for name in (owner.name, owner.label)]
    search = Search.parse(experiment.search, named, experiment.places)
    search.check(used, plans, names, experiment.base, experiment.places)
    picked = None
    if experiment.points is not None:
        picked = HandPicked(experiment, used, plans, names)
    swept = {key: grid[key] for key in grid if key in names}
    _check_size(experiment, grid)
    _check_names(experiment, names, used, plans, search, swept, picked)
    techniques = _techniques(experiment, grid)
    found = []
    for values in itertools.product(*swept.values()):
        fields = dict(zip(swept, values, strict=True))
        for schedule, technique, optimizer in itertools.product(plans, techniques, used):
            entries = search.resolve(optimizer, schedule, names)
            points: tuple[Point, ...] = ()
            if picked is not None:
                points, entries = picked.of(optimizer, schedule, entries)
            one = _combine(experiment, names, fields, optimizer, schedule, technique, entries)
            found.append(replace(one, points=points))
    return found, search


def _check_size(experiment: Experiment, grid: Mapping[str, Sequence[Any]]) -> None:
    """Before any combination is made."""
    sizes = {**{key: len(values) for key, values in grid.items()}}
    sizes["batch_size"] = len(experiment.batch_sizes)
    if (studies := math.prod(sizes.values())) > _MOST_STUDIES:
        product = " × ".join(f"{size:,} {key}" for key, size in sizes.items() if size > 1)
        raise experiment.error(
            ("grid",),
            f"the grid has {count(studies, 'study')}: {product}",
            f"at most {_MOST_STUDIES:,}: sweep parts of it one after the other",
        )


def _field_names(experiment: Experiment, grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """Names of the workload's fields."""
    try:
        return list(workloads.load(experiment.workload, {}, experiment.base).fields)
    except WorkloadError as error:
        if "needs a value" not in str(error):
            raise experiment.error(("workload",), str(error), error.hint) from None
    swept = {key: values[0] for key, values in grid.items() if key not in _KEYS}
    return list(_load(experiment, swept, None).fields)


def _values(experiment: Experiment, key: str, value: Any) -> Sequence[Any]:
    """The values of a key of the grid: a lone one is a list of one."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if key in ("batch_size", "technique"):
        return values
    path = ("grid", key)
    if not values:
        raise experiment.error(path, f"grid.{key} is an empty list", "leave the key out")
    seen: set[str] = set()
    for i, item in enumerate(values):
        if item is None or isinstance(item, Mapping):
            raise experiment.error(
                (*path, i), f"grid.{key}: {item!r} is not a value", "what is tuned goes to search:"
            )
        try:
            text = canonical(item)
        except ExperimentError:
            raise experiment.error((*path, i), f"grid.{key}: {item!r} is not a value") from None
        if text in seen:
            raise experiment.error((*path, i), f"grid.{key}: {item!r} is said twice", "keep one")
        seen.add(text)
    return values


def _named(experiment: Experiment, path: Path, get: Any, *arguments: Any) -> Any:
    if not isinstance(arguments[0], str):
        raise experiment.error(path, f"{path[-2]} {arguments[0]!r} is not a name")
    try:
        return get(*arguments)
    except ExperimentError as error:
        raise experiment.error(path, str(error), error.hint) from None


_Described = tuple[Path, Optimizer | Schedule, Any]
"""Where it stands in the file, what it is, and its identity."""


def _check_labels(
    experiment: Experiment, used: Sequence[Optimizer], plans: Sequence[Schedule]
) -> None:
    """An optimizer or a schedule is in the grid once, and no two are called the same."""
    labels: dict[str, Optimizer | Schedule] = {}
    identities: dict[str, Optimizer | Schedule] = {}
    reserved = {*optimizers.names(), *schedules.names()}
    of_optimizers: Iterable[_Described] = (
        (("grid", "optimizer", i), one, optimizer_identity(one, experiment.base))
        for i, one in enumerate(used)
    )
    of_schedules: Iterable[_Described] = (
        ((*experiment.said("schedule"), i), one, schedule_identity(one, experiment.base))
        for i, one in enumerate(plans)
    )
    for path, one, described in (*of_optimizers, *of_schedules):
        name, label = one.name, one.label
        same = identities.setdefault(canonical(described), one)
        namesake = labels.setdefault(label, one)
        hint = f"give it a name of its own: {name} as {label}-2"
        if same is not one:
            message, hint = f"{label} is {same.label}, which is there already", "keep one"
        elif namesake is not one:
            message = f"{namesake.name} and {name} are both called {label}"
        elif label in reserved and label != name:
            message = f"{name} is called {label}, which is something else"
        else:
            continue
        raise experiment.error(path, f"{dotted(path[:-1])}: {message}", hint)


def _schedules(experiment: Experiment, grid: Mapping[str, Sequence[Any]]) -> list[Schedule]:
    if "schedule" in grid:
        _once(experiment, "schedule")
        return [
            _named(experiment, ("grid", "schedule", i), schedules.get, name, experiment.base)
            for i, name in enumerate(grid["schedule"])
        ]
    named = _named(experiment, ("schedule", 0), schedules.get, experiment.schedule, experiment.base)
    return [named]


def _once(experiment: Experiment, key: str) -> None:
    if key in experiment.model_fields_set:
        raise experiment.error(
            ("grid", key), f"{key} is in the grid and beside it", "keep one of the two"
        )


def _techniques(experiment: Experiment, grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    axes: dict[str, Sequence[Any]] = {}
    for key in SETTINGS:
        if key in grid:
            _once(experiment, key)
        elif getattr(experiment, key) is not None:
            axes[key] = [getattr(experiment, key)]
            continue
        else:
            continue
        for i, value in enumerate(grid[key]):
            path = ("grid", key, i)
            if key == "precision" and value not in _PRECISIONS:
                hint = nearest(str(value), _PRECISIONS)
                raise experiment.error(path, f"unknown precision {value!r}", hint)
            if key == "ghost_batch" and (not isinstance(value, int) or value < 1):
                raise experiment.error(
                    path, f"ghost_batch {value!r} is not a whole number of at least 1"
                )
        axes[key] = grid[key]
    for i, ghost in enumerate(axes.get("ghost_batch", ())):
        if experiment.micro_batch and experiment.micro_batch % ghost:
            raise experiment.error(
                (*experiment.said("ghost_batch"), i),
                f"ghost_batch {ghost} does not divide micro_batch {experiment.micro_batch}",
                "a micro-batch is made of whole ghost batches",
            )
    settings = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    if "technique" in grid:
        _once(experiment, "technique")
        values = grid["technique"]
    else:
        values = ["none" if experiment.technique is None else experiment.technique]
    if not values:
        raise experiment.error(
            ("grid", "technique"), "grid.technique is an empty list", "leave the key out"
        )
    place = experiment.said("technique")
    named = [_arguments(experiment, (*place, i), value) for i, value in enumerate(values)]
    for i, arguments in enumerate(named):
        if arguments in named[:i]:
            raise experiment.error(
                (*place, i), f"{dotted(place)}: {values[i]!r} is said twice", "keep one"
            )
    return [{**each, **arguments} for each, arguments in itertools.product(settings, named)]


def _arguments(experiment: Experiment, path: Path, value: Any) -> dict[str, Any]:
    """The arguments of the techniques of one value of the grid, in their shortest form."""
    if value == "none":
        return {}
    described = {value: True} if isinstance(value, str) else value
    if not isinstance(described, Mapping) or not described:
        raise experiment.error(
            path,
            f"technique {value!r} is neither a name nor names with their arguments",
            "for example: technique: {clip: 1.0}; or none",
        )
    for name in described:
        try:
            techniques.load({name: described[name]}, experiment.base)
        except ExperimentError as error:
            raise experiment.error((*path, name), str(error), error.hint) from None
    try:
        loaded = techniques.load(described, experiment.base)
    except ExperimentError as error:
        raise experiment.error(path, str(error), error.hint) from None
    return {name: technique.written for name, technique in loaded.parts.items()}


def _check_names(
    experiment: Experiment,
    names: Sequence[str],
    used: Sequence[Optimizer],
    plans: Sequence[Schedule],
    search: Search,
    swept: Mapping[str, Any],
    picked: HandPicked | None,
) -> None:
    """A name must mean one thing: a field of the workload, an argument, swept or tuned."""
    for schedule, optimizer in itertools.product(plans, used):
        for name in sorted(optimizer.arguments & schedule.specific_arguments):
            raise experiment.error(
                (*experiment.said("schedule"), plans.index(schedule)),
                f"schedule {schedule.label} and optimizer {optimizer.label} both have an argument "
                f"{name!r}",
                "rename the one of your own file",
            )
    arguments = {o.label: o.arguments for o in used} | {s.label: s.arguments for s in plans}
    for owner, legal in arguments.items():
        for name in sorted(legal.intersection(names)):
            raise experiment.error(
                ("workload",),
                f"field {name!r} of the workload has the name of an argument of {owner}",
                "rename the field",
            )
    said = {(n,) for n in search.general} | {(s, n) for s, e in search.sections.items() for n in e}
    for path in sorted(said):
        if path[-1] in swept:
            raise experiment.error(
                ("search", *path), f"{path[-1]} is in the grid and in search", "keep one of the two"
            )
    for name in sorted(picked.names.intersection(swept) if picked else ()):
        raise experiment.error(
            ("grid", name), f"{name} is in the grid and in points", "keep one of the two"
        )


def _combine(
    experiment: Experiment,
    names: Sequence[str],
    swept: Mapping[str, Any],
    optimizer: Optimizer,
    schedule: Schedule,
    technique: Mapping[str, Any],
    entries: Mapping[str, Any],
) -> Combination:
    space = {n: e for n, e in entries.items() if isinstance(e, Dimension)}
    plain = {n: e for n, e in entries.items() if n not in space}
    fields = {**swept, **{n: e for n, e in plain.items() if n in names}}
    workload = _load(experiment, fields, optimizer)
    for name, value in workload.fields.items():
        if holds_key(value):
            raise experiment.error(
                ("workload",), f"field {name!r} of workload {workload.name} holds a key", WRITTEN
            )
    for name in set(names).intersection(space):  # both ends must be values that the field can have
        for value in space[name].levels(2):  # and all choices
            _load(experiment, {**fields, name: value}, optimizer)
    return Combination(
        workload=workload,
        fields=fields,
        optimizer=optimizer,
        schedule=schedule,
        technique=technique,
        space=space,
        fixed={n: e for n, e in plain.items() if n not in names},
    )


def _load(
    experiment: Experiment, fields: Mapping[str, Any], optimizer: Optimizer | None
) -> Workload:
    try:
        return workloads.load(experiment.workload, fields, experiment.base)
    except WorkloadError as error:
        named = [name for name in fields if f"field {name!r}" in str(error)]
        path: Path = ("grid", named[0]) if named else ("workload",)
        if named and named[0] not in experiment.grid:
            path = ("search", named[0])
            for key in (optimizer.name, optimizer.label) if optimizer else ():
                section = experiment.search.get(key)
                if isinstance(section, Mapping) and named[0] in section:
                    path = ("search", key, named[0])
            path = path if experiment.points is None else ("points",)
        raise experiment.error(path, str(error), error.hint) from None
