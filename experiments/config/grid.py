"""The ``grid`` key of an experiment file: the values of each axis, and what they name loaded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import workloads
from experiments import optimizers, schedules, techniques
from experiments.canonical import canonical
from experiments.config.schema import EITHER_KEYS, GRID_KEYS, ExperimentFile
from experiments.config.yaml_lines import Path, dotted
from experiments.errors import ExperimentError, below, nearest
from experiments.factors.design import combinations
from experiments.factors.ramp import Ramp
from experiments.factors.rule import Rule
from experiments.identity import optimizer_identity, schedule_identity
from experiments.optimizers import Optimizer
from experiments.plan import AUTO, Layout, PrecisionName
from experiments.schedules import Schedule
from experiments.schedules.base import WARMUP
from experiments.techniques import SETTINGS
from experiments.typed import Count, Keys, checked
from results.counts import count
from workloads import Workload, WorkloadError

_KEYS = (*GRID_KEYS, *EITHER_KEYS)
_MOST_STUDIES = 100_000
T = TypeVar("T")


class _Settings(Keys):
    precision: tuple[PrecisionName, ...] = ()
    ghost_batch: tuple[Count, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The axes of the grid, but for the batch sizes."""

    optimizers: Sequence[Optimizer]
    schedules: Sequence[Schedule]
    techniques: Sequence[Mapping[str, Any]]
    """Each with its settings: precision and ghost batch."""
    technique_paths: Sequence[Path]
    """Where the techniques of each are written."""
    ramps: Sequence[Ramp | None]
    rules: Sequence[Rule | None]
    fields: Sequence[str]
    """Names of all fields of the workload."""
    swept: Mapping[str, Sequence[Any]]
    """Values of the fields that are swept."""

    @property
    def factors(self) -> tuple[Sequence[Any], ...]:
        """The values of each factor of the training algorithm."""
        return self.schedules, self.techniques, self.ramps, self.rules, self.optimizers

    @property
    def owners(self) -> list[Optimizer | Schedule]:
        """An optimizer, schedule or technique with arguments."""
        return [*self.optimizers, *self.schedules]

    @property
    def scheduled(self) -> frozenset[str]:
        """What every study may tune with any optimizer: arguments of schedules, and fields."""
        return frozenset(self.fields).union(*(s.arguments for s in self.schedules))

    @classmethod
    def read(cls, file: ExperimentFile) -> Grid:
        """The grid of a file.

        Raises:
            ExperimentError: an unknown key or name, or a value that cannot be.
            WorkloadError: the workload itself is wrong.
        """
        axes = {key: axis_values(file, key, value) for key, value in file.grid.items()}
        fields = _field_names(file, axes)
        for key in axes:
            if key not in _KEYS and key not in fields:
                hint = nearest(key, [*_KEYS, *fields])
                raise file.error(("grid", key), f"unknown key {key!r} in grid", hint)
            if key in EITHER_KEYS and key in file.model_fields_set:
                message = f"{key} is in the grid and beside it"
                raise file.error(("grid", key), message, "keep one of the two")
        if "optimizer" not in axes:
            message = "grid has no optimizer"
            raise file.error(("grid",), message, "for example: optimizer: [sgd, momentum, adam]")
        for key in EITHER_KEYS:
            value = getattr(file, key)
            if key not in axes and (value is not None or key != "ghost_batch"):
                axes[key] = ["none" if value is None else value]
        described, technique_paths = _techniques(file, axes)
        grid = cls(
            optimizers=_load(file, "optimizer", axes["optimizer"], optimizers.get),
            schedules=_load(file, "schedule", axes["schedule"], schedules.get),
            techniques=described,
            technique_paths=technique_paths,
            ramps=_factors(file, ("grid", "batch_size", "ramp"), file.ramps, Ramp.parse),
            rules=_factors(file, file.path_of("rule"), axes["rule"], Rule.parse),
            fields=fields,
            swept={key: axes[key] for key in axes if key in fields and key not in _KEYS},
        )
        _check_labels(file, grid)
        sizes = {key: len(values) for key, values in axes.items()}
        sizes["batch_size"] = len(file.batch_sizes)
        sizes["ramp"] = len(grid.ramps)
        crossed = [n for key, n in sizes.items() if key == "batch_size" or key in fields]
        others = [n for key, n in sizes.items() if key != "batch_size" and key not in fields]
        studies = math.prod(crossed) * combinations(file.parsed_design, others)
        if studies > _MOST_STUDIES:
            mark = ", " if file.parsed_design.alone else " × "
            parts = mark.join(f"{size:,} {key}" for key, size in sizes.items() if size > 1)
            message = f"the grid has {count(studies, 'study')}: {parts}"
            hint = f"at most {_MOST_STUDIES:,}: sweep parts of it one after the other"
            raise file.error(("grid",), message, hint)
        grid._check_arguments(file)
        grid._check_rules(file)
        return grid

    def _check_rules(self, file: ExperimentFile) -> None:
        """A rule needs optimizers with its metaparameters."""
        for i, rule in enumerate(self.rules):
            with file.places.errors_at((*file.path_of("rule"), i)):
                if rule is not None:
                    rule.check(self.optimizers)

    def _check_arguments(self, file: ExperimentFile) -> None:
        """An argument must belong to one: the schedule, the optimizer or the workload."""
        for schedule, optimizer in itertools.product(self.schedules, self.optimizers):
            for name in sorted(optimizer.arguments & schedule.arguments - {*WARMUP}):
                raise file.error(
                    (*file.path_of("schedule"), self.schedules.index(schedule)),
                    f"schedule {schedule.label} and optimizer {optimizer.label} both have an "
                    f"argument {name!r}",
                    "rename the argument in your file",
                )
        for owner in self.owners:
            for name in sorted(owner.arguments.intersection(self.fields)):
                message = f"field {name!r} of the workload has the name of an argument of "
                raise file.error(("workload",), f"{message}{owner.label}", "rename the field")


def load_workload(
    file: ExperimentFile, fields: Mapping[str, Any], paths: Mapping[str, Path]
) -> Workload:
    """The workload with these fields; an error has the place where the field was given."""
    try:
        return workloads.load(file.spec, fields, file.base)
    except WorkloadError as error:
        named = [name for name in fields if f"field {name!r}" in str(error)]
        path = paths[named[0]] if named else ("workload",)
        raise file.error(path, str(error), error.hint) from None


def _field_names(file: ExperimentFile, axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Names of the workload's fields."""
    try:
        return list(workloads.load(file.workload, {}, file.base).fields)
    except WorkloadError as error:
        if "needs a value" not in str(error):
            raise file.error(("workload",), str(error), error.hint) from None
    swept = {key: values[0] for key, values in axes.items() if key not in _KEYS}
    return list(load_workload(file, swept, {name: ("grid", name) for name in swept}).fields)


def axis_values(file: ExperimentFile, key: str, value: Any) -> Sequence[Any]:
    """The values of a key of the grid; a single value becomes a list."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if key == "batch_size":
        return values
    path: Path = ("grid", key)
    if not values:
        raise file.error(path, f"grid.{key} is an empty list", "leave the key out")
    if key in ("technique", "rule"):
        return values
    seen: set[str] = set()
    for i, item in enumerate(values):
        with file.places.errors_at(path, named=True), below(i):
            message = f"{item!r} is not a value"
            if item is None or isinstance(item, Mapping):
                raise ExperimentError(message, hint="what is tuned is written below search:")
            try:
                text = canonical(item)
            except ExperimentError:
                raise ExperimentError(message) from None
            if text in seen:
                raise ExperimentError(f"{item!r} is given twice", hint="keep one")
            seen.add(text)
    return values


def _load(
    file: ExperimentFile, key: str, names: Sequence[Any], get: Callable[[str, str], T]
) -> list[T]:
    """The named objects."""
    loaded = []
    for i, name in enumerate(names):
        path = (*file.path_of(key), i)
        if not isinstance(name, str):
            raise file.error(path, f"{key} {name!r} is not a name")
        with file.places.errors_at(path):
            loaded.append(get(name, file.base))
    return loaded


def _check_labels(file: ExperimentFile, grid: Grid) -> None:
    """An optimizer or a schedule is in the grid once, and no two have the same label."""
    owners: list[tuple[Path, Optimizer | Schedule, Any]] = [
        (("grid", "optimizer", i), optimizer, optimizer_identity(optimizer, file.base))
        for i, optimizer in enumerate(grid.optimizers)
    ]
    owners += [
        ((*file.path_of("schedule"), i), schedule, schedule_identity(schedule, file.base))
        for i, schedule in enumerate(grid.schedules)
    ]
    labels: dict[str, Optimizer | Schedule] = {}
    identities: dict[str, Optimizer | Schedule] = {}
    for path, owner, identity in owners:
        name, label = owner.name, owner.label
        same = identities.setdefault(canonical(identity), owner)
        namesake = labels.setdefault(label, owner)
        hint = f"give it another name: {name} as {label}-2"
        if same is not owner:
            message, hint = f"{label} is {same.label}, which is in the grid already", "keep one"
        elif namesake is not owner:
            message = f"{namesake.name} and {name} are both called {label}"
        elif label in {*optimizers.names(), *schedules.names()} and label != name:
            message = f"{name} is called {label}, but that is the name of something else"
        else:
            continue
        raise file.error(path, f"{dotted(path[:-1])}: {message}", hint)


def _techniques(
    file: ExperimentFile, axes: Mapping[str, Sequence[Any]]
) -> tuple[list[dict[str, Any]], list[Path]]:
    """The settings of the grid, each with each of its techniques, and where these are written."""
    settings = {key: axes[key] for key in SETTINGS if key in axes}
    with file.places.errors_at(("grid",)):
        checked(_Settings, settings, {})
    place = file.path_of("technique")
    arguments: list[dict[str, Any]] = []
    for i, value in enumerate(axes["technique"]):
        arguments.append(_technique(file, (*place, i), value))
        with file.places.errors_at(place, named=True), below(i):
            if arguments[-1] in arguments[:-1]:
                raise ExperimentError(f"{value!r} is given twice", hint="keep one")
    combined = [*itertools.product(*settings.values(), enumerate(arguments))]
    described = [
        {**dict(zip(settings, values, strict=True)), **each} for *values, (_, each) in combined
    ]
    return described, [(*place, i) for *_, (i, _) in combined]


def _factors(
    file: ExperimentFile, path: Path, values: Sequence[Any], parse: Callable[[Any], T]
) -> list[T]:
    """Ramps or rules, each of them once."""
    factors: list[T] = []
    for i, value in enumerate(values):
        with file.places.errors_at(path, named=True), below(i):
            factor = parse(value)
            if factor in factors:
                raise ExperimentError(f"{value!r} is given twice", hint="keep one")
        factors.append(factor)
    return factors


def written_layout(file: ExperimentFile) -> Layout:
    """The layout as far as techniques depend on it: its data ranks, and whether there are others.

    What it says is checked elsewhere, once the workloads are known.
    """
    if not isinstance(file.layout, Mapping):
        name = None if file.layout in (None, AUTO, "data") else str(file.layout)
        return Layout(name=name, workers=file.workers)
    data = file.layout.get("data", 1)
    others = tuple(  # True, of a switch, equals 1
        (str(k), 1)
        for k, v in file.layout.items()
        if k != "data" and (v is True or v not in (1, False))
    )
    return Layout(workers=data if isinstance(data, int) and data > 0 else 1, dimensions=others)


def _technique(file: ExperimentFile, path: Path, value: Any) -> dict[str, Any]:
    """The arguments of the techniques of one value of the grid, in their shortest form."""
    if value == "none":
        return {}
    described = {value: True} if isinstance(value, str) else value
    if not isinstance(described, Mapping) or not described:
        message = f"technique {value!r} is neither a name nor names with their arguments"
        raise file.error(path, message, "for example: technique: {clip: 1.0}; or none")
    kinds = (ExperimentError, WorkloadError)
    for name in described:
        if name in techniques.OTHER_KEYS:
            message = f"{name} is a key of the experiment, not a technique"
            where = "under grid.batch_size" if name == "ramp" else "beside technique"
            raise file.error((*path, name), message, f"write it {where}")
        with file.places.errors_at((*path, name), *kinds):
            techniques.load({name: described[name]}, file.base)
    with file.places.errors_at(path, *kinds):
        loaded = techniques.load(described, file.base)
    for name, technique in loaded.parts.items():
        with file.places.errors_at((*path, name), *kinds):
            loaded.parts[name] = technique.in_layout(written_layout(file))
            for data_file in technique.data_files():
                technique.located(data_file, file.base)
    return {name: technique.written for name, technique in loaded.parts.items()}
