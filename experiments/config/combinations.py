"""The combinations of a grid: workload fields × schedule × technique × optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import techniques
from experiments.canonical import canonical
from experiments.config.grid import Grid, load_workload
from experiments.config.load import KEY_HINT, holds_key
from experiments.config.points import HandPicked, Point
from experiments.config.program_grid import program_grid
from experiments.config.schema import ExperimentFile
from experiments.config.tuning import Entries, Tuning, check_domain
from experiments.config.yaml_lines import Path as KeyPath
from experiments.errors import ExperimentError
from experiments.factors.design import combined
from experiments.factors.ramp import Ramp
from experiments.factors.rule import Rule
from experiments.factors.target_share import TargetShare, mentions, resolved, shares
from experiments.optimizers import Optimizer
from experiments.plan import Search, Study, WorkloadRef
from experiments.schedules.base import WARMUP, Schedule
from experiments.search.space import Dimension, Value
from results.counts import count
from workloads import Workload
from workloads.user_code.data_files import listed


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One training algorithm on one workload, at any batch size."""

    workload: Workload
    fields: Mapping[str, Any]
    """Fields that the experiment sets."""
    optimizer: Optimizer
    schedule: Schedule
    technique: Mapping[str, Any]
    search: Search
    """Its id and its table follow from the batch size."""
    ramp: Ramp | None = None
    """How the batch size grows; also in ``technique``, as text."""
    swept: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the grid."""
    paths: Mapping[str, KeyPath] = field(default_factory=dict)
    """Where in the file each factor is written, and what is tuned and fixed, by name."""
    baseline: tuple[Combination, ...] = ()
    """Of whose steps to target lengths are shares (``experiments.factors.target_share``)."""
    points_from: Combination | None = None
    """The design's baseline, whose points it trains; ``None``: it has points of its own."""
    replicate: int = 0
    """Which search of the baseline it is, where a design repeats that; 0: the first, or no such."""

    @property
    def given(self) -> frozenset[str]:
        """What is tuned, or given and not zero."""
        rows = (self.search.fixed, *self.search.points)
        return frozenset(self.search.space) | {
            n for row in rows for n, value in row.items() if value
        }

    @property
    def without_rule(self) -> Combination:
        """The same, freely tuned."""
        technique = {name: value for name, value in self.technique.items() if name != "rule"}
        return replace(self, search=replace(self.search, rule=None), technique=technique)

    @property
    def techniques_alone(self) -> str:
        """Its techniques, without settings and further factors, in canonical form."""
        others = {*techniques.SETTINGS, "ramp", "rule"}
        return canonical({n: v for n, v in self.technique.items() if n not in others})

    def workload_ref(self, file: ExperimentFile) -> WorkloadRef:
        """How a worker loads the workload, and tells whether it has the data of the driver."""
        fingerprint = self.workload.data_fingerprint
        return WorkloadRef(
            spec=file.spec, fields=self.fields, base=file.base, data_fingerprint=fingerprint
        )

    def values(self, u: float) -> dict[str, Value]:
        """What is fixed, and each tuned metaparameter at ``u`` of its range."""
        tuned = {name: dimension.value(u) for name, dimension in self.search.space.items()}
        return {**self.search.fixed, **tuned}


_PACKAGE = Path(techniques.__file__).parent


def data_files(combinations: Sequence[Combination], base: str | None = None) -> list[str]:
    """Paths of the data files that workloads and techniques name as theirs (``data_files``), but
    for those that every worker has with this package.

    ``base``: the folder that relative ones start from.
    """
    paths = {path for each in combinations for path in listed(each.workload.data_files())}
    for each in combinations:
        for files in techniques.data_files(each.technique, base).values():
            paths.update(path for path, file in files.items() if _PACKAGE not in file.parents)
    return sorted(paths)


def combinations(file: ExperimentFile) -> tuple[list[Combination], Tuning]:
    """The combinations of the grid that its design has, and what is tuned in them.

    Raises:
        ExperimentError: an unknown name or value anywhere in the grid or the search.
        WorkloadError: the workload itself is wrong.
    """
    grid = Grid.read(file) if not file.is_program else program_grid(file)
    tuned = Tuning.read(file, grid)
    picked = None if file.points is None else HandPicked(file, grid)
    result = []
    for values in itertools.product(*grid.swept.values()):
        swept = dict(zip(grid.swept, values, strict=True))
        baseline = None
        for algorithm, replicate in combined(file.parsed_design, grid.factors):
            schedule, technique, ramp, rule, optimizer = algorithm
            factors = {
                key: str(factor) for key, factor in (("ramp", ramp), ("rule", rule)) if factor
            }
            entries = tuned.resolve(optimizer, schedule, grid.fields)
            if rule is not None:
                entries = {n: e for n, e in entries.items() if n not in rule.given}
            points: tuple[Point, ...] = ()
            if picked is not None:
                points, entries = picked.resolve(optimizer, schedule, entries)
            if rule is not None:
                _check_rule(file, rule, entries)
            for name in optimizer.domains.keys() & entries.keys():
                with file.places.errors_at(entries[name].path, named=True):
                    check_domain(entries[name].entry, optimizer.domains[name])
            space = {n: e for n, (e, _) in entries.items() if isinstance(e, Dimension)}
            fixed = {n: e for n, (e, _) in entries.items() if not isinstance(e, Dimension)}
            fields = {**swept, **{n: e for n, e in fixed.items() if n in grid.fields}}
            paths: dict[str, KeyPath] = {
                **{name: ("grid", name) for name in swept},
                **{name: path for name, (_, path) in entries.items()},
                "optimizer": ("grid", "optimizer", grid.optimizers.index(optimizer)),
                "schedule": (*file.path_of("schedule"), grid.schedules.index(schedule)),
                "technique": grid.technique_paths[grid.techniques.index(technique)],
                "ramp": ("grid", "batch_size", "ramp", grid.ramps.index(ramp)),
                "rule": (*file.path_of("rule"), grid.rules.index(rule)),
            }
            workload = _workload(file, grid, fields, space, paths)
            search = Search(
                method=file.search_method,
                seed=file.seed,
                space=space,
                fixed={n: e for n, e in fixed.items() if n not in grid.fields},
                points=points,
                rule=rule,
                tokens_per_example=workload.tokens_per_example,
                extend=file.extend,
                repeats=file.repeats,
            )
            result.append(
                Combination(
                    workload=workload,
                    fields=fields,
                    optimizer=optimizer,
                    schedule=schedule,
                    technique={**technique, **factors},
                    search=search,
                    ramp=ramp,
                    swept=swept,
                    paths=paths,
                    points_from=baseline if baseline and baseline.search.space == space else None,
                    replicate=replicate,
                )
            )
            if file.parsed_design.shared_points and baseline is None:
                baseline = result[-1]
    return _with_baselines(file, result), tuned


def at_steps(
    file: ExperimentFile, combination: Combination, baseline: Study, steps: int
) -> Combination:
    """The combination with shares of the budget for those of ``steps``, the ``baseline``'s to
    target at the same batch size.

    Raises:
        ExperimentError: a technique cannot have these.
    """
    # Schedules and ramps run in examples, which are steps where no ramp is; techniques in steps.
    seen, examples = baseline.batches.schedule_step(steps), baseline.schedule_steps
    technique = resolved(combination.technique, steps, baseline.budget_steps)
    ramp, search = combination.ramp, combination.search
    try:
        techniques.load(technique, file.base)
    except ExperimentError as error:
        known = f"{count(steps, 'step')} to target at batch size {baseline.batch_size}"
        message = f"with {known}: {error}"
        raise file.error(combination.paths["technique"], message, error.hint) from None
    fixed = resolved(search.fixed, seen, examples)
    after_warmup = combination.schedule.decays_after_warmup and {*WARMUP} & combination.given
    if after_warmup and mentions(search.fixed.get("decay")):
        # As a share of the budget, it would be one of what the warmup leaves.
        fixed["decay_steps"] = max(1, round(float(fixed.pop("decay")) * examples))
    ramp = ramp and replace(ramp, changes=resolved(ramp.changes, seen, examples))
    return replace(combination, technique=technique, search=replace(search, fixed=fixed), ramp=ramp)


def _workload(
    file: ExperimentFile,
    grid: Grid,
    fields: Mapping[str, Any],
    space: Mapping[str, Dimension],
    paths: Mapping[str, KeyPath],
) -> Workload:
    """The workload with these fields, which must also take what its tuned fields may be."""
    workload = load_workload(file, fields, paths)
    for name, value in workload.fields.items():
        if holds_key(value):
            message = f"field {name!r} of workload {workload.name} holds a key"
            raise file.error(("workload",), message, KEY_HINT)
    for name in set(grid.fields).intersection(space):
        for value in space[name].levels(2):  # both ends of a range, or all choices
            load_workload(file, {**fields, name: value}, paths)
    return workload


def _check_rule(file: ExperimentFile, rule: Rule, entries: Entries) -> None:
    """What the rule gives is not given by hand too, and the rest is such that it can be."""
    if names := sorted(rule.given & entries.keys()):
        message = f"points give {names[0]}, which rule {rule} gives"
        raise file.error(("points",), message, "leave it out of the points")
    ends = {
        name: entry.levels(2) if isinstance(entry, Dimension) else (entry,)
        for name, (entry, _) in entries.items()
    }
    with file.places.errors_at(file.path_of("rule")):
        rule.check_search(ends)


def _with_baselines(file: ExperimentFile, combinations: Sequence[Combination]) -> list[Combination]:
    """Combinations whose lengths are of the target, with their ``baseline``; the others as they
    are.

    Raises:
        ExperimentError: there is no baseline, or it has such a length itself; with the place.
    """
    searches: dict[str, list[Combination]] = {}  # of each baseline, which precede the others
    result = []
    for combination in combinations:
        baseline = searches.setdefault(repr(combination.swept), [])
        if not baseline or combination.replicate:
            baseline.append(combination)
        length = _share_of_target(combination)
        if length is None:
            result.append(combination)
            continue
        with file.places.errors_at(combination.paths[length[0]]):
            message = f"'{length[1]}' is of the baseline's steps to target, and "
            if not file.parsed_design.alone:
                hint = "design: one_factor makes one of the first value of each factor"
                raise ExperimentError(f"{message}there is no baseline", hint=hint)
            if combination in baseline:
                raise ExperimentError(
                    f"{message}the baseline has it",
                    hint="the first value of each factor makes the baseline: give it in another "
                    "one; in search, below the name of another schedule",
                )
        result.append(replace(combination, baseline=tuple(baseline)))
    return result


def _share_of_target(combination: Combination) -> tuple[str, TargetShare] | None:
    """The first length that is of the target, and the name of what has it."""
    ramp = combination.ramp
    parts = {"technique": combination.technique, "ramp": ramp.changes if ramp else ()}
    for name, value in {**parts, **combination.search.fixed}.items():
        for share in shares(value):
            return name, share
    return None
