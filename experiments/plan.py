"""What is trained: a study, its trials, and the packs in which trials are sent to workers.

Everything here is small, frozen and picklable: it crosses process borders and machines. A workload
is sent by name, and the worker that trains it loads it. Of a study its fields are sent, and not the
trials that it has drawn.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from experiments.batch_sizes import BatchSizes
from experiments.canonical import TrialIds, canonical
from experiments.search import max_rows, table
from experiments.search.base import Space, Table
from experiments.search.space import Dimension, Value
from experiments.seeds import derive
from results.optimizers import class_name
from results.targets.target import Target

if TYPE_CHECKING:  # a rank's process starts without torch
    from experiments.factors.rule import Rule
    from experiments.optimizers import Optimizer
    from experiments.schedules import Schedule
    from workloads.user_code.program import Program

Role = Literal["search", "extension", "repeat", "branch"]
Status = Literal["COMPLETE", "INFEASIBLE", "INCOMPLETE"]
PrecisionName = Literal["float32", "float64", "bfloat16", "float16", "tf32", "bfloat16_weights"]
AUTO: Literal["auto"] = "auto"
REPEATS_FROM = 1_000_000_000
"""The first index of repeats, far beyond the indices of any table."""
BaselineSteps = Callable[[str], int | None]
"""The steps to target by the id of a baseline's study; ``None`` where they are not known yet."""
StopReason = Literal["target", "budget", "diverged", "dominated", "error"]


@dataclass(frozen=True, kw_only=True)
class WorkloadRef:
    """How to load a workload anywhere: its name, ``file.py:Class`` or program, and its fields."""

    spec: str | Program
    fields: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None
    """Folder that a relative ``file.py`` starts from (the experiment file's)."""
    data_fingerprint: str | None = None
    """The workload's own of its data when the study was planned; ``None``: it is not compared."""

    @property
    def program(self) -> Program | None:
        """The program, with its factors."""
        return None if isinstance(self.spec, str) else self.spec.with_fields(self.fields)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a global batch is laid out. The trajectory does not depend on it (but for rounding)."""

    name: str | None = None
    """How a model spreads over the workers (``experiments.parallel``): a packaged name or
    ``file.py:Class``; ``None``: data parallelism."""
    dimensions: tuple[tuple[str, int], ...] = ()
    """Dimensions of the workers' mesh with their numbers of ranks, in the order in which they are
    documented (``experiments.parallel.composed``); a switch, as ``sequence`` is one, has 1."""
    pipeline: tuple[tuple[str, Any], ...] = ()
    """Its ``schedule`` and ``micro_batches``, where pipeline is one of the dimensions."""
    auto: Literal[True] | None = None
    """Whether workers choose all that by measurement first (``training.auto_layout``)."""
    workers: int = 1
    micro_batch: int | None = None
    """Most examples of one model a worker puts through one forward; ``None``: its whole share."""
    gpus_per_worker: float = 0.0
    """GPUs of a worker: 0.25 trains four packs on each; 0: a whole one, where there is any."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a study tunes, and where its points come from."""

    method: str = "sobol"
    """How points are drawn (``experiments.search``)."""
    id: str = ""
    """Hash of all that decides which points are drawn, but for the seed."""
    seed: int = 0
    """Seed of the table: the experiment's seed."""
    space: Space = field(default_factory=dict)
    """What is tuned, in alphabetical order: one column of the table each."""
    fixed: Mapping[str, Value] = field(default_factory=dict)
    """Metaparameters of one value."""
    points: tuple[Mapping[str, Value], ...] = ()
    """The rows of the table, where they are given by hand."""
    rule: Rule | None = None
    """What derives metaparameters from those of the table."""
    tokens_per_example: int | None = None
    """The workload's, by which lengths in tokens become steps."""
    table_from: str | None = None
    """The id of the study whose table it is; ``None``: its own."""
    extend: int = 0
    """How many times the space may be enlarged towards its edge (``experiments.enlarged``)."""
    repeats: int = 0
    """How many times the best configuration is trained again, with fresh seeds."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """One metaparameter search: one workload, one training algorithm, one batch size."""

    id: str
    identity: Mapping[str, Any] = field(default_factory=dict)
    """What the id hashes (``experiments.identity.study_identity``)."""
    experiment: str
    workload: WorkloadRef
    optimizer: str
    """What loads it: a registered name or ``file.py:Class`` (relative to ``workload.base``)."""
    optimizer_name: str | None = None
    """The optimizer's display name; ``None`` for the name of its class."""
    schedule: str
    """As ``optimizer``."""
    schedule_name: str | None = None
    """The schedule's display name; ``None`` for the name of its class."""
    technique: Mapping[str, Any] = field(default_factory=dict)
    """``precision``, ``ghost_batch``, ``ramp``, ``rule``, and techniques by what loads them, with
    their arguments: part of the training algorithm, not tuned."""
    written_technique: Mapping[str, Any] | None = None
    """The same with lengths as the file writes them, ``0.5 of target``; ``None``: none is."""
    baseline_steps: int | None = None
    """The baseline's steps to target, where lengths are shares of them and these are known."""
    baseline: tuple[str, ...] = ()
    """Ids of the studies of whose steps to target lengths are shares."""
    batch_size: int
    """Examples of the first step, and of every step where there is no ramp."""
    ramp: BatchSizes | None = None
    """The batch size at each step, where it grows."""
    trials: int
    """Feasible trials wanted."""
    budget_steps: int
    recorded_budget_steps: int | None = None
    """The budget of a recorded trial that is trained again to where it stopped."""
    repeat_data: bool = True
    """Whether a trial may see an example more than once."""
    train_examples: int | None = None
    """Examples of the training split, which make an epoch; ``None`` if it has no end, or they were
    not counted."""
    targets: tuple[Target, ...]
    """Easiest first, all of one metric; the last one is recorded with the trial."""
    stop_at_target: bool = True
    keep: int | None = 4
    """How many best trials stay exact under dominated stopping; ``None``: it is off."""
    evaluation_ratio: float | None = 1.05  # None: a program evaluates when it does
    evaluate: Literal["auto", "full"] = "auto"
    """``auto``: an evaluation ends when a miss of the target is certain; ``full``: it reads the
    whole split."""
    search: Search = field(default_factory=Search)
    stops_itself: bool = False  # perhaps, after any round (``scheduling.interim``)
    estimator: str = "minimum"
    """The estimator that represents a batch size in the analysis; recorded."""
    engine: str = "auto"  # a rule on the shapes decides; else ``module`` or ``stacked``
    layout: Layout = field(default_factory=Layout)
    replicate: int = 0
    """Which search of a design's baseline; the others differ from it in points and seeds alone."""

    @property
    def optimizer_label(self) -> str:
        """The optimizer in tables, figures and messages."""
        return self.optimizer_name or class_name(self.optimizer)

    @property
    def schedule_label(self) -> str:
        """The schedule in tables, figures and messages."""
        return self.schedule_name or class_name(self.schedule)

    @property
    def batches(self) -> BatchSizes:
        """The batch size at each step."""
        return self.ramp or BatchSizes.constant(self.batch_size)

    @property
    def schedule_steps(self) -> int:
        """The budget in steps of ``batch_size`` examples, of which lengths are shares."""
        return (self.ramp and self.ramp.schedule_steps) or self.budget_steps

    @property
    def technique_steps(self) -> int:
        """The steps of which lengths of techniques are shares."""
        return self.recorded_budget_steps or self.budget_steps

    @property
    def mean_batch_size(self) -> float:
        """Examples a step, on the average of the budget."""
        return self.batches.mean_size(self.budget_steps)

    @property
    def technique_by_label(self) -> dict[str, Any]:
        """The technique in tables, figures and messages: a user's class without its file."""
        written = self.written_technique or self.technique
        return {class_name(name): arguments for name, arguments in written.items()}

    @property
    def shape(self) -> str:
        """Studies of one shape differ in batch size and budget alone: they run the same code."""
        alike = (self.workload, self.optimizer, self.schedule, self.technique, self.layout)
        return repr(alike)

    @property
    def waits(self) -> bool:
        """Whether the baseline's steps are not known yet, so that it has no trials."""
        return bool(self.baseline) and self.baseline_steps is None

    @property
    def max_rows(self) -> int:
        """Rows of its table that may be drawn to find the trials wanted."""
        most, size = max_rows(self.search.method, self.trials), self._table.size
        return most if size is None else min(size, most)

    def draw(self, start: int, stop: int) -> list[Trial]:
        """The trials of rows ``start`` … ``stop - 1`` of its table, fewer beyond ``max_rows``.

        A row is the same trial whatever other rows are drawn, and however many are wanted.
        """
        stop = min(stop, self.max_rows)
        drawn, occurrences = self._drawn
        for row in self._table.rows(len(drawn), stop):
            values = self.resolved(row)
            point = canonical(values)
            drawn.append(self.made(values, occurrences[point], index=len(drawn), point=point))
            occurrences[point] += 1
        return drawn[start:stop]

    def trial(self, index: int) -> Trial:
        """The trial of row ``index`` of its table.

        Raises:
            IndexError: it is beyond ``max_rows``.
        """
        return self.draw(index, index + 1)[0]

    def repeats(self, trial: Trial) -> list[Trial]:
        """The trial's metaparameters again, with as many fresh seeds as the search repeats.

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
            for copy in range(self.search.repeats)
        ]

    def resolved(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """A row of the table and what is fixed, by the rule and with lengths in steps."""
        (optimizer, schedule), search = self.algorithm, self.search
        size, tokens, values = self.batch_size, search.tokens_per_example, {**search.fixed, **row}
        if search.rule is not None:
            effective = optimizer.effective_learning_rate
            values = search.rule.applied(values, size, optimizer.defaults, tokens, effective)
        timed = {n: v for n, v in values.items() if n in schedule.arguments}
        rest = {n: v for n, v in values.items() if n not in schedule.arguments}
        lengths = schedule.resolve(timed, self.schedule_steps, size, tokens)
        return dict(sorted({**rest, **lengths}.items()))

    def made(
        self, values: Mapping[str, Value], occurrence: int, *, index: int, point: str | None = None
    ) -> Trial:
        """The trial of a point that ``occurrence`` trials before it have too.

        Args:
            point: the values in canonical form, if the caller has it.
        """
        seed = self.search.seed
        name = self._ids.id(point or canonical(values), (seed, occurrence))
        return Trial(id=name, index=index, seed=derive(seed, self.id, name), metaparameters=values)

    def notation(self, space: Space | None = None) -> dict[str, Any]:
        """Its ranges, or those of another ``space``, as an experiment file writes them; lengths in
        examples or tokens are in steps, as trials hold them."""
        (optimizer, schedule), search = self.algorithm, self.search
        size, tokens, ranges = self.batch_size, search.tokens_per_example, dict[str, Dimension]()
        for name, dimension in (space or search.space).items():
            if name in schedule.amounts:
                dimension = dimension.divided(schedule.amount_of_step(name, size, tokens))
            ranges[schedule.amounts.get(name, name)] = dimension
        if search.rule is not None:
            fixed = {**optimizer.defaults, **search.fixed}
            effective = optimizer.effective_learning_rate
            ranges = search.rule.ranges(ranges, size, fixed, tokens, effective)
        return {name: dimension.notation() for name, dimension in ranges.items()}

    @functools.cached_property
    def algorithm(self) -> tuple[Optimizer, Schedule]:
        """Its optimizer and its schedule, loaded."""
        from experiments.programs.algorithm import load

        return load(self.workload.program, self.optimizer, self.schedule, self.workload.base)

    @functools.cached_property
    def _ids(self) -> TrialIds:
        return TrialIds(self.identity)

    @functools.cached_property
    def _table(self) -> Table:
        search = self.search
        seed = derive(search.seed, search.table_from or self.id, "search")
        return table(search.method, search.space, seed, self.trials, search.points)

    @functools.cached_property
    def _drawn(self) -> tuple[list[Trial], Counter[str]]:
        """The trials drawn so far, and how often each point occurs among them."""
        return [], Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One training run: a study's point of the search, with a seed."""

    id: str
    index: int
    """Row of the study's search table."""
    enlargement: int = 0
    """How many times the space had been enlarged when the row was drawn."""
    seed: int
    """63-bit; every random stream of the trial derives from it (``experiments.seeds``)."""
    metaparameters: Mapping[str, Value]
    """As resolved: the optimizer's arguments, the schedule's (in steps), tuned workload fields."""
    role: Role = "search"
    round: int = 0
    other_searches: Mapping[str, int] = field(default_factory=dict)
    """Earlier searches of the study that drew it, and its row in their tables."""
    branch: tuple[int, int] | None = None
    """Its data order is that of another seed up to a step: (the seed, the step)."""


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Trials of one study that one worker group trains together."""

    id: str
    study: Study
    """With the ``keep`` of these trials: none for repeats, whose median is taken."""
    trials: tuple[Trial, ...]
    engine: Literal["auto", "module", "stacked"] = "auto"
    """``auto``: as ``engines.selection`` chooses; later packs of a study use the same."""
    known: tuple[int, ...] = ()
    """Steps to target of the study's trials that other packs have finished."""
    keep_paused: bool = False
    """Whether dominated trials may have to continue in a later round."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One evaluation of a trial at a step."""

    trial: str
    step: int
    examples: int
    train_seconds: float
    metrics: Mapping[str, float]
    """``{"validation_error": 0.05, …}``: float64 means over the split, or what was read of it."""
    evaluated_examples: int | None = None
    """Examples of the split that were read; ``None``: all, and the next four are ``None`` too."""
    interval_metric: str | None = None
    """The metric that the next three are about (``experiments.training.evaluation.misses``)."""
    interval_low: float | None = None
    interval_high: float | None = None
    """Between these lies its mean over the whole split."""
    standard_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended."""

    trial: str
    status: Status
    stop_reason: StopReason
    steps_run: int
    examples_run: int
    steps_to_target: int | None = None
    last_miss: int | None = None
    """Last evaluated step before ``steps_to_target`` (0 if it was the first)."""
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    other_seconds: float = 0.0
    gradients_per_step: int | None = None
    """How often a step takes the gradient of its global batch; ``None``: once."""
    micro_batch: int | None = None
    """Most examples of one forward pass; ``None``: its worker could not say."""
    skipped_steps: int | None = None
    """Steps without an update, whose scaled gradient overflowed; ``None``: nothing is scaled."""
    error: str | None = None
