"""What is trained: a study, its trials, and the packs in which trials are sent to workers.

Everything here is small, frozen and picklable: it crosses process borders and machines. A workload
is sent by name; the worker that trains it loads it (``WorkloadRef.load``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.batch_sizes import BatchSizes
from results.optimizers import class_name
from results.targets.target import Target

Value = float | int | str | bool
Role = Literal["search", "extension", "repeat"]
Status = Literal["COMPLETE", "INFEASIBLE", "INCOMPLETE"]
Precision = Literal["float32", "float64", "bfloat16", "float16", "tf32", "bfloat16_weights"]
AUTO: Literal["auto"] = "auto"
REPEATS_FROM = 1_000_000_000
"""The first index of repeats, far beyond the indices of any table."""
BaselineSteps = Callable[[str], int | None]
"""The steps to target by the id of a baseline's study; ``None`` where they are not known yet."""
StopReason = Literal["target", "budget", "diverged", "dominated", "error"]


@dataclass(frozen=True, kw_only=True)
class WorkloadRef:
    """How to load a workload anywhere: a registered name or ``file.py:Class``, and its fields."""

    spec: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None
    """Folder that a relative ``file.py`` starts from (the experiment file's)."""
    data_fingerprint: str | None = None
    """The workload's own of its data when the study was planned; ``None``: it is not compared."""


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
    """Whether a pack's workers choose all that, and the micro-batch, by measurement before they
    train it (``experiments.training.auto_layout``); until then it is data parallelism."""
    workers: int = 1
    micro_batch: int | None = None
    """Most examples of one model a worker puts through one forward; ``None``: its whole share."""
    gpus_per_worker: float = 0.0
    """A GPU, or the part of one that a worker needs: 0.25 trains four packs on each. 0: a whole
    one, where the cluster has any."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """One metaparameter search: one workload, one training algorithm, one batch size."""

    id: str
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
    evaluation_ratio: float = 1.05
    evaluate: Literal["auto", "full"] = "auto"
    """``auto``: an evaluation ends when a miss of the target is certain; ``full``: it reads the
    whole split."""
    search: str = "sobol"
    """How points are drawn (``experiments.search``)."""
    search_id: str = ""
    """Description of the search: its space, fixed values, method (``StudyPlan``)."""
    search_seed: int = 0
    """Seed of the search's table: the experiment's seed."""
    extend: int = 0
    """How many times the space may be enlarged where the optimum sits on its edge."""
    repeats: int = 0
    """How many times the best configuration is trained again, with fresh seeds."""
    estimator: str = "minimum"
    """The estimator that represents a batch size in the analysis; recorded."""
    engine: str = "auto"
    """``auto`` (a rule on the shapes decides), ``module`` or ``stacked``."""
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


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Trials of one study that one worker group trains together."""

    id: str
    study: Study
    """With the ``keep`` of these trials: none for repeats, whose median is taken."""
    trials: tuple[Trial, ...]
    engine: Literal["auto", "module", "stacked"] = "auto"
    """``auto``: as ``experiments.engines.selection`` chooses; later packs of a study use the
    same."""
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
    """``{"validation_error": 0.05, …}``: means over the whole split, or over what was read of it,
    float64."""
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
