"""From an experiment file to studies: every combination of the grid, checked and identified."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import workloads
from experiments import identity, parallel, schedules
from experiments.config import budget
from experiments.config.combinations import Combination
from experiments.config.enlarged import Enlarged, enlarge
from experiments.config.grid import GridError, resolve
from experiments.config.measures import check_metric
from experiments.config.optimizer_check import check_optimizers
from experiments.config.schedule_check import check_schedules
from experiments.errors import ExperimentError
from experiments.identity import TrialIds
from experiments.plan import Layout, Role, Study, Trial, Value, WorkloadRef
from experiments.schedules import Schedule
from experiments.search import History, Table, block, grid_size, table
from experiments.search.space import Dimension, Side
from experiments.seeds import derive
from experiments.training import evaluation_grid
from results.counts import count
from workloads.checks import check_splits

if TYPE_CHECKING:
    from experiments.config.file import Experiment

_DRAWN_AT_MOST = 4
"""Times the trials wanted: how many rows of a table may be drawn to find so many feasible."""
_MOST_EVALUATIONS = 1_000_000
_REPEATS_FROM = 1_000_000_000
"""Where the indices of repeats begin: far beyond those of any table."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study and the table that its trials are rows of."""

    study: Study
    seed: int
    """The experiment's."""
    identity: Mapping[str, Any]
    """What the study's id hashes (``experiments.identity.study_identity``)."""
    space: Mapping[str, Dimension]
    """What is tuned, in alphabetical order: one column of the table each."""
    fixed: Mapping[str, Value]
    """Metaparameters of one value."""
    points: tuple[Mapping[str, Value], ...] = ()
    """The rows of the table, where they are given by hand."""

    @property
    def max_rows(self) -> int:
        """Rows that may be drawn to find the trials wanted."""
        size = self._table.size
        return _DRAWN_AT_MOST * self.study.trials if size is None else min(size, self.study.trials)

    @property
    def search_space(self) -> dict[str, Any]:
        """The tuned ranges, as an experiment file writes them."""
        return {name: dimension.notation() for name, dimension in self.space.items()}

    def trials(self, start: int, stop: int, history: History = ()) -> list[Trial]:
        """Rows ``start`` … ``stop - 1`` of the table, fewer beyond ``max_rows``; role "search".

        A row is the same trial whatever other rows are asked for, and however many are wanted.

        Args:
            history: how the rows before came out, where the method learns from it.
        """
        stop = min(stop, self.max_rows)
        drawn, occurrences = self._drawn
        for row in self._table.rows(len(drawn), stop, history):
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
                index=(copy + 1) * _REPEATS_FROM + trial.index,
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
                ``[("learning_rate", "low")]``.

        Returns:
            ``None`` where none of them can be moved.
        """
        return enlarge(self, self.space, sides, number)

    def resolved(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """A row of the table and what is fixed, with shares of the budget in steps."""
        schedule = self.schedule
        values = {**self.fixed, **row}
        timed = {n: v for n, v in values.items() if n in schedule.arguments}
        rest = {n: v for n, v in values.items() if n not in schedule.arguments}
        return dict(sorted({**rest, **schedule.resolve(timed, self.study.budget_steps)}.items()))

    def made(
        self, values: Mapping[str, Value], occurrence: int, *, index: int, point: str | None = None
    ) -> Trial:
        """The trial of a point, which there are ``occurrence`` others of before it.

        ``point``: the values in canonical form, where that is at hand.
        """
        name = self._ids.id(point or identity.canonical(values), (self.seed, occurrence))
        return Trial(
            id=name,
            index=index,
            search_seed=self.seed,
            seed=derive(self.seed, self.study.id, name),
            metaparameters=values,
        )

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The study's."""
        return schedules.get(self.study.schedule, self.study.workload.base)

    @functools.cached_property
    def _ids(self) -> TrialIds:
        return TrialIds(self.identity)

    @functools.cached_property
    def _table(self) -> Table:
        study, seed = self.study, derive(self.seed, self.study.id, "search")
        worst = 2.0 * study.budget_steps
        return table(study.search, self.space, seed, study.trials, self.points, worst=worst)

    @functools.cached_property
    def _drawn(self) -> tuple[list[Trial], Counter[str]]:
        """The trials drawn so far, and how often each point occurs among them."""
        return [], Counter()


def make(
    experiment: Experiment, found: Sequence[Combination], source: str | None
) -> list[StudyPlan]:
    """The studies of all combinations, batch sizes ascending within each.

    Args:
        source: hash of the workload's code to go by in identities, in place of the present one
            (an earlier run's, whose results are to be kept).

    Raises:
        ExperimentError: a batch size, budget or target that the workload's data cannot have; an
            optimizer that does not take the model's parameters; a schedule that gives no factor.
        WorkloadError: the data cannot be had.
    """
    sizes: dict[str, int] = {}
    plans: list[StudyPlan] = []
    for combination in found:
        workload = combination.workload
        key = identity.canonical(workload.fields)
        if key not in sizes:
            data = check_splits(workload.data(), workload)
            if not sizes:
                check_metric(experiment, workload, data)
                check_optimizers(experiment, found)
                check_schedules(experiment, found)
            train = data["train"]
            sizes[key] = len(train[0] if isinstance(train, tuple) else train)  # type: ignore[arg-type]
        for batch_size in _batch_sizes(experiment, sizes[key]):
            steps = _budget_steps(experiment, batch_size, sizes[key])
            plan = _plan(experiment, combination, batch_size, steps, sizes[key], source)
            plans.append(plan)
    return plans


def _batch_sizes(experiment: Experiment, train: int) -> list[int]:
    try:
        return resolve(experiment.batch_sizes, train)
    except GridError as error:
        raise experiment.error(("grid", "batch_size"), str(error), error.hint) from None


def _budget_steps(experiment: Experiment, batch_size: int, train: int) -> int:
    steps = experiment.budget_of.in_steps(batch_size, train)
    if steps < 1:
        raise experiment.error(
            ("budget",),
            f"budget {experiment.budget} is not one step at batch size {batch_size}",
            "add steps: 50 epochs + 2000 steps",
        )
    if steps > budget.MOST:
        raise experiment.error(
            ("budget",),
            f"budget {experiment.budget} is {count(steps, 'step')} at batch size {batch_size}",
            f"at most {budget.MOST:,}",
        )
    ratio = experiment.evaluation_ratio
    if (evaluations := evaluation_grid.count(ratio, steps)) > _MOST_EVALUATIONS:
        raise experiment.error(
            ("evaluation_ratio",),
            f"evaluation_ratio {ratio:.16g} makes about {evaluations:,.0f} evaluations of a "
            f"trial of {count(steps, 'step')}",
            f"at most {_MOST_EVALUATIONS:,}; 1.05 makes {evaluation_grid.count(1.05, steps):,.0f}",
        )
    return steps


def _plan(
    experiment: Experiment,
    combination: Combination,
    batch_size: int,
    budget_steps: int,
    train_examples: int,
    source: str | None,
) -> StudyPlan:
    ghost = combination.technique.get("ghost_batch")
    if ghost is not None and batch_size % int(ghost):
        raise experiment.error(
            experiment.said("ghost_batch"),
            f"ghost_batch {ghost} does not divide batch size {batch_size}",
            "set a divisor, or leave that batch size out",
        )
    what = workloads.identity(combination.workload)
    kept = {n: v for n, v in what["fields"].items() if n not in combination.space}
    what = {**what, "fields": kept}
    if source is not None and "source" in what:
        what["source"] = source
    described = identity.study_identity(
        workload=what,
        optimizer=identity.optimizer_identity(combination.optimizer, experiment.base),
        schedule=identity.schedule_identity(combination.schedule, experiment.base),
        technique=identity.technique_identity(combination.technique, experiment.base),
        batch_size=batch_size,
        evaluation_ratio=experiment.evaluation_ratio,
    )
    trials = experiment.wanted(combination)
    if experiment.search_method == "grid":
        trials = grid_size(combination.space, trials)
    study = Study(
        id=identity.study_id(described),
        experiment=experiment.name,
        workload=WorkloadRef(
            spec=experiment.workload, fields=combination.fields, base=experiment.base
        ),
        optimizer=combination.optimizer.name,
        optimizer_name=combination.optimizer.display_name,
        schedule=combination.schedule.name,
        schedule_name=combination.schedule.display_name,
        technique=combination.technique,
        batch_size=batch_size,
        trials=trials,
        budget_steps=budget_steps,
        train_examples=train_examples,
        targets=experiment.targets,
        stop_at_target=experiment.stop_at_target,
        keep=experiment.keep,
        evaluation_ratio=experiment.evaluation_ratio,
        search=experiment.search_method,
        search_id=_search_id(experiment, combination, trials, budget_steps),
        search_seed=experiment.seed,
        extend=experiment.extend,
        repeats=experiment.repeats,
        refine=experiment.refine_ratio,
        estimator=experiment.estimator,
        engine=experiment.engine,
        layout=_layout(experiment),
    )
    return StudyPlan(
        study=study,
        seed=experiment.seed,
        identity=described,
        space=combination.space,
        fixed=combination.fixed,
        points=combination.points,
    )


def _layout(experiment: Experiment) -> Layout:
    name = experiment.layout
    if name is not None:
        try:
            name = parallel.get(name, experiment.base).name
        except ExperimentError as error:
            raise experiment.error(("layout",), str(error), error.hint) from None
    return Layout(name=name, workers=experiment.workers, micro_batch=experiment.micro_batch)


def _search_id(
    experiment: Experiment, combination: Combination, trials: int, budget_steps: int
) -> str:
    """What makes two searches of a study the same but for their seed: all that decides which
    points its table holds.

    Shares of the budget resolve to steps, so that another budget is another table; a grid has more
    levels for more trials; what a method that learns draws depends on all that it is told.
    """
    method = experiment.search_method
    described: dict[str, Any] = {
        "method": method,
        "space": {name: one.notation() for name, one in combination.space.items()},
        "fixed": dict(combination.fixed),
        "points": list(combination.points),
    }
    learns = block(method) is not None
    if method == "grid":
        described["trials"] = trials
    if learns or combination.schedule.shares.keys() & {*combination.space, *combination.fixed}:
        described["budget_steps"] = budget_steps
    if learns:
        described["target"] = str(experiment.targets[-1])
        described["keep"] = experiment.keep if experiment.stop_at_target else None
    return identity.digest(described)
