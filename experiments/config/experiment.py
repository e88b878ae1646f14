"""An experiment: a grid of studies, as its file says it.

Defaults: schedule constant, trials 64, budget 50 epochs + 2000 steps, the workload's own target,
keep 4, evaluation ratio 1.05, seed 0, engine auto, one worker, float32.
"""

from __future__ import annotations

import functools
import os
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from experiments.config import searching, yaml_lines
from experiments.config.budget import Budget, BudgetError
from experiments.config.combinations import Combination, combinations
from experiments.config.errors import complaint
from experiments.config.grid import BatchSize, GridError, batch_sizes
from experiments.config.measures import check_directions
from experiments.config.plans import StudyPlan, make
from experiments.config.tuning import Search
from experiments.config.yaml_lines import Places
from experiments.errors import ExperimentError
from experiments.plan import Study
from experiments.techniques import SETTINGS
from results.counts import count
from results.errors import ResultsError
from results.targets.target import Target

_FROM_THE_FILE = "paths start at the experiment file"


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _off(value: Any) -> Any:
    return None if value is False or value == "off" else value


def _many(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,)


LONGEST_NAME = 200
_MOST_TARGETS = 100
_LARGEST = 2**63 - 1
Whole = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=1, le=_LARGEST)]
Number = Annotated[StrictInt, BeforeValidator(_whole), Field(ge=0, le=_LARGEST)]
Words = Annotated[tuple[StrictStr, ...], BeforeValidator(_many)]


class Experiment(BaseModel):
    """An experiment file, read and checked; ``load`` and ``from_keywords`` make one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[
        StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)
    ]
    workload: StrictStr
    grid: dict[str, Any]
    search: dict[str, Any] = {}
    method: StrictStr = "sobol"
    """How points are drawn (``experiments.search``)."""
    points: Any = None
    """By hand, in the place of drawn ones: a list of mappings, or one for each optimizer."""
    schedule: StrictStr = "constant"
    technique: Any = None
    """A name, or names with their arguments: ``{clip: 1.0}``."""
    trials: Annotated[Count, Field(le=1_000_000)] = 64
    """Feasible points a study."""
    budget: Any = "50 epochs + 2000 steps"
    target: Words = ()
    """Empty: the workload's own."""
    stop_at_target: StrictBool = True
    keep: Annotated[Count | None, BeforeValidator(_off)] = 4
    """``None`` (written ``off``): all trials stay exact."""
    extend: Number = 0
    """How many times the space may be enlarged towards an edge that the optimum sits on."""
    repeats: Annotated[Number, Field(le=10_000)] = 0
    """How many times the best configurations are trained again, with fresh seeds."""
    refine: Any = "off"
    """A share, ``1%`` or ``0.01``: brackets of hits are walked again at looks so far apart."""
    estimator: Literal["minimum", "best_of_10", "median_of_searches"] = "minimum"
    """What stands for a batch size in the analysis."""
    evaluation_ratio: Annotated[float, Field(strict=True, gt=1)] = 1.05
    seed: Whole = 0
    engine: Literal["auto", "module", "stacked"] = "auto"
    workers: Count = 1
    layout: StrictStr | None = None
    """How a model spreads over the workers; ``None``: data parallelism."""
    micro_batch: Count | None = None
    precision: Literal["float32", "float64", "bfloat16"] = "float32"
    ghost_batch: Count | None = None
    files: Words = ()
    """What Ray's workers need besides the workload's and the optimizers' own files."""

    _base: str = PrivateAttr()
    _places: Places = PrivateAttr()
    _found: tuple[list[Combination], Search] = PrivateAttr()

    @classmethod
    def checked(cls, data: dict[str, Any], places: Places, base: str) -> Experiment:
        """An experiment of plain data, all of it checked that can be without the data set.

        Raises:
            ExperimentError: a key or a value that cannot be; with its line.
            WorkloadError: the workload itself is wrong.
        """
        try:
            experiment = cls.model_validate(data)
        except ValidationError as error:
            raise complaint(error, cls.model_fields, places) from None
        experiment._base, experiment._places = base, places
        for i, file in enumerate(experiment.files):
            if not os.path.exists(os.path.join(base, os.path.expanduser(file))):
                raise places.error(
                    ("files", i), f"files: no file {file!r} in {base}", _FROM_THE_FILE
                )
        searching.check(experiment)
        experiment._found = combinations(experiment)
        searching.check_spaces(experiment, experiment._found[0])
        _ = experiment.batch_sizes, experiment.budget_of
        check_directions(experiment, experiment._found[0][0].workload)
        return experiment

    @property
    def base(self) -> str:
        """The folder that relative paths start from: the experiment file's."""
        return self._base

    @property
    def places(self) -> Places:
        """Where each key was said."""
        return self._places

    @functools.cached_property
    def batch_sizes(self) -> tuple[BatchSize, ...]:
        """As written: integers, and ``full`` for the training set."""
        if "batch_size" not in self.grid:
            raise self.error(
                ("grid",), "grid names no batch_size", "for example: batch_size: 8..4096"
            )
        try:
            return batch_sizes(self.grid["batch_size"])
        except GridError as error:
            path = ("grid", "batch_size", error.position or 0)
            raise self.error(path, f"grid.batch_size: {error}", error.hint) from None

    @property
    def search_method(self) -> str:
        """As said; points that are given are the method."""
        if self.points is not None and "method" not in self.model_fields_set:
            return "points"
        return self.method

    @functools.cached_property
    def refine_ratio(self) -> float | None:
        """The ratio of the grid that brackets are refined on; ``None``: they are not."""
        return searching.refine_ratio(self)

    @functools.cached_property
    def budget_of(self) -> Budget:
        """The budget, parsed."""
        try:
            return Budget.parse(self.budget)
        except BudgetError as error:
            raise self.error(("budget",), str(error), error.hint) from None

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """Easiest first, all of one metric; the workload's own if the file names none."""
        texts = self.target or (self._found[0][0].workload.target,)
        if len(texts) > _MOST_TARGETS:
            message = count(len(texts), "target")
            raise self.error(("target",), message, f"at most {_MOST_TARGETS}")
        found: list[Target] = []
        for i, text in enumerate(texts):
            try:
                target = Target.parse(text)
            except ResultsError as error:
                raise self.error(("target", i), str(error), error.hint) from None
            if found and target.metric != found[0].metric:
                raise self.error(
                    ("target", i),
                    f"targets of two metrics: {found[0].metric} and {target.metric}",
                    "training stops at the hardest, so that all are of one metric",
                )
            if target in found:
                raise self.error(("target", i), f"target {target} is said twice", "keep one")
            if found and target.lower_is_better != found[0].lower_is_better:
                raise self.error(("target", i), f"targets {found[0]} and {target} point apart")
            found.append(target)
        falling = found[0].lower_is_better
        return tuple(sorted(found, key=lambda target: target.value, reverse=falling))

    @property
    def notes(self) -> list[str]:
        """What is legal but may not be meant, in sentences."""
        found = []
        if self.keep is not None and self.keep > self.trials and "keep" in self.model_fields_set:
            found.append(
                f"keep is {self.keep} and trials {self.trials}: every trial stays exact, "
                "none is dominated."
            )
        return found

    def plans(self, source: str | None = None) -> list[StudyPlan]:
        """A plan for each study: combinations of the grid in its order, batch sizes ascending.

        Reads the workload's data (for the size of its training set).

        Args:
            source: go by this hash of the workload's code (an earlier run's ``workload_version``)
                instead of the present one, so that its results count as this experiment's.

        Raises:
            ExperimentError: a batch size, budget or target that the data cannot have.
            WorkloadError: the data cannot be had.
        """
        return make(self, self._found[0], source)

    def studies(self) -> list[Study]:
        """The studies alone."""
        return [plan.study for plan in self.plans()]

    def to_yaml(self) -> str:
        """The resolved file: all defaults and search spaces said. Loaded again (with the same
        base folder), it gives the same studies and trials."""
        found, search = self._found
        used = list({c.optimizer.name: c.optimizer for c in found}.values())
        schedules = list({c.schedule.name: c.schedule for c in found}.values())
        data = self.model_dump(exclude_none=True, exclude={"keep", "files", *self._in_grid()})
        if self.points is not None:  # their number, where `trials` says none
            data["trials"] = max(map(self.wanted, found))
        data |= {
            "grid": {**self.grid, "batch_size": _one_or_list(self.batch_sizes)},
            "search": search.written(used, schedules, found[0].workload.fields),
            "budget": str(self.budget_of),
            "target": [str(target) for target in self.targets],
            "keep": "off" if self.keep is None else self.keep,
            "method": self.search_method,
            "refine": self.refine if self.refine_ratio else "off",
        }
        if self.files:
            data["files"] = list(self.files)
        return yaml_lines.write(data)

    def wanted(self, combination: Combination) -> int:
        """Feasible trials of each of its studies: of points at most as many as there are."""
        if self.points is None:
            return self.trials
        count = len(combination.points)
        return min(count, self.trials) if "trials" in self.model_fields_set else count

    def target_path(self, target: Target) -> yaml_lines.Path:
        """Where a target stands; the workload's own where it is not said."""
        parsed = [Target.parse(text) for text in self.target]
        return ("target", parsed.index(target)) if target in parsed else ("workload",)

    def _in_grid(self) -> set[str]:
        return {key for key in ("schedule", "technique", *SETTINGS) if key in self.grid}

    def said(self, key: str) -> yaml_lines.Path:
        """Where a key that may stand in the grid or beside it stands."""
        return ("grid", key) if key in self.grid else (key,)

    def error(
        self, path: yaml_lines.Path, message: str, hint: str | None = None
    ) -> ExperimentError:
        """An error that begins with the file and the line of ``path``."""
        return self._places.error(path, message, hint)


def _one_or_list(values: tuple[BatchSize, ...]) -> Any:
    return values[0] if len(values) == 1 else list(values)
