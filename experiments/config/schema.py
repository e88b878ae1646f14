"""What an experiment file may say: its keys, their types and defaults, and what they rule out.

Nothing here needs the workload, the optimizers or the schedules that the file names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, StrictBool, StrictStr

from experiments import search
from experiments.amounts import Amount, BatchSize, batch_sizes
from experiments.config.sources import why_not_copied
from experiments.config.yaml_lines import Path, Places
from experiments.errors import ExperimentError, elsewhere, nearest
from experiments.factors.design import Design
from experiments.plan import PrecisionName
from experiments.programs.parse import command_of_function, is_function
from experiments.programs.parse import parse as parse_program
from experiments.search.space import SCALES
from experiments.techniques import SETTINGS
from experiments.typed import Count, Keys, Number, Texts, Whole, checked
from results.targets.quantities import QUANTITIES
from workloads.user_code.program import Program


def _none_if_off(value: Any) -> Any:
    return None if value is False or value == "off" else value


GRID_KEYS = ("batch_size", "optimizer")
EITHER_KEYS = ("schedule", "technique", "rule", *SETTINGS)
"""Keys that are in the grid, or at the top level with one value."""
LONGEST_NAME = 200
_BEST_OF = 10
_OF_PROGRAMS = ("devices", "nodes", "resume", "metrics")


class _GrowingSizes(Keys):
    """``batch_size`` where it grows."""

    sizes: Any = Field(alias="from")
    ramp: Any = "none"


class ExperimentFile(Keys):
    """The keys of an experiment file."""

    name: Annotated[
        StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)
    ]
    workload: StrictStr
    """Empty where there is a ``program``."""
    program: StrictStr | list[StrictStr] | None = None
    """The command of a user's own program, with ``{names}`` (``experiments.programs``)."""
    devices: Count | None = None
    """GPUs of a trial of a program; ``None``: one for each node."""
    nodes: Count | None = None
    """Machines of a trial of a program; ``None``: one."""
    resume: StrictStr | None = None
    """What is appended to the command where a trial goes on."""
    metrics: StrictStr | None = None
    """Where a program reports (``experiments.programs.metrics``); ``None``: on standard output."""
    grid: dict[str, Any]
    design: Any = "product"
    """Which combinations of the grid's factors are studied (``experiments.factors.design``)."""
    search: dict[str, Any] = Field(default_factory=dict)
    method: StrictStr = "sobol"
    """How points are drawn (``experiments.search``)."""
    points: Any = None
    """Points chosen by hand, instead of drawn ones: a list of mappings, or one per optimizer."""
    schedule: StrictStr = "constant"
    technique: Any = None
    """A name, or names with their arguments: ``{clip: 1.0}``."""
    rule: Any = None
    """What derives metaparameters from another batch size's (``experiments.factors.rule``)."""
    trials: Annotated[Count, Field(le=1_000_000)] = 64
    """Feasible points of each study."""
    budget: Any = "50 epochs + 2000 steps"
    repeat_data: StrictBool = True
    """Whether a trial may see an example twice; if not, a budget is at most one pass."""
    target: Texts = ()
    """Empty: the workload's own."""
    stop_at_target: StrictBool = True
    keep: Annotated[Count | None, BeforeValidator(_none_if_off)] = 4
    """``None`` (written ``off``): all trials stay exact."""
    extend: Number = 0
    """How many times the space may be enlarged towards an edge that the optimum sits on."""
    repeats: Annotated[Number, Field(le=10_000)] = 0
    """How many times the best configurations are trained again, with fresh seeds."""
    stop: dict[StrictStr, Annotated[float, Field(strict=True, gt=1)]] | None = None
    """Factors about the estimates of quantities: once the interval of each curve lies within them,
    the sweep stops after the round."""
    estimator: Literal["minimum", "best_of_10", "median_of_searches"] = "minimum"
    """The estimator of a batch size in the analysis."""
    evaluation_ratio: Annotated[float, Field(strict=True, gt=1)] = 1.05
    evaluate: Literal["auto", "full"] = "auto"
    """``full``: the whole split at each evaluation, also where a miss is certain before."""
    seed: Whole = 0
    engine: Literal["auto", "module", "stacked"] = "auto"
    workers: Count = 1
    layout: Any = None
    """How a model spreads over the workers: a name, or dimensions with their numbers of ranks;
    ``auto``: as measured before training; ``None``: data parallelism."""
    gpus: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    """The part of a GPU that a worker needs: 0.25 trains four packs on each. ``None``: a whole one,
    where there is any."""
    micro_batch: Count | None = None
    precision: PrecisionName = "float32"
    ghost_batch: Count | None = None
    files: Texts = ()
    """What Ray's workers need besides the workload's and the optimizers' own files."""

    _base: str = PrivateAttr()
    _places: Places = PrivateAttr()

    @classmethod
    def checked(cls, data: dict[str, Any], places: Places, base: str) -> Self:
        """The keys of plain data, each of them checked.

        Args:
            places: where each key was given.
            base: the folder that relative paths start from.

        Raises:
            ExperimentError: a key or a value that cannot be; with its line.
        """
        if data.get("program") is not None:
            if "workload" in data:
                message = "program and workload: an experiment has one of the two"
                raise places.error(("program",), message, "leave one of them out")
            data = {**data, "workload": ""}
        with places.errors_at(()):
            file = checked(cls, data, _HINTS, _unknown)
        file._base, file._places = base, places
        file._check_program_keys()
        named_by_user = not places.at(("files",)) or places.at(("files",)).startswith("--set ")
        for i, path in enumerate(file.files):
            if refused := why_not_copied(path, base, named_by_user=named_by_user):
                raise file.error(("files", i), *refused)
        file._check_method()
        file._check_stop()
        file._check_estimator()
        _ = file.parsed_design
        return file

    @property
    def base(self) -> str:
        """The folder that relative paths start from: the experiment file's."""
        return self._base

    @property
    def part(self) -> bool:
        """Whether ``--set`` has changed the file's grid: then other studies of the experiment are
        not dropped from it."""
        return "grid" in self.places.settings

    @property
    def places(self) -> Places:
        """Where each key was given."""
        return self._places

    @functools.cached_property
    def batch_sizes(self) -> tuple[BatchSize, ...]:
        """As written: integers, sizes in a unit, and ``full`` for the training set."""
        if "batch_size" not in self.grid:
            message = "grid has no batch_size"
            raise self.error(("grid",), message, "for example: batch_size: 8..4096")
        sizes = self.grid["batch_size"]
        if isinstance(sizes, Mapping):
            hints = {"from": "the batch sizes of the first step: {from: 16..64, ramp: …}"}
            with self._places.errors_at(("grid", "batch_size"), named=True):
                sizes = checked(_GrowingSizes, sizes, hints).sizes
        with self._places.errors_at(self.sizes_path, named=True):
            return batch_sizes(sizes)

    @property
    def sizes_path(self) -> Path:
        """The place of the batch sizes."""
        ramped = isinstance(self.grid["batch_size"], Mapping)
        return ("grid", "batch_size", *(["from"] if ramped else []))

    @property
    def ramps(self) -> tuple[Any, ...]:
        """Batch-size schedules as written, ``none`` among them."""
        sizes = self.grid.get("batch_size")
        ramps = sizes.get("ramp", "none") if isinstance(sizes, Mapping) else "none"
        return tuple(ramps) if isinstance(ramps, (list, tuple)) else (ramps,)

    @functools.cached_property
    def parsed_budget(self) -> Amount:
        """The budget as a sum of epochs, steps, examples and tokens."""
        with self._places.errors_at(("budget",), named=True):
            return Amount.parse(self.budget)

    @functools.cached_property
    def parsed_design(self) -> Design:
        """Which combinations of the factors are studied, and how often the baseline is."""
        with self._places.errors_at(("design",), named=True):
            return Design.parse(self.design)

    @property
    def search_method(self) -> str:
        """The method; ``points`` where points are given and no method is."""
        if self.points is not None and "method" not in self.model_fields_set:
            return "points"
        return self.method

    @functools.cached_property
    def spec(self) -> str | Program:
        """What loads the workload: its name, its file, or the program itself, which a function of
        a file is too."""
        command = self.program
        if command is None:
            if not is_function(self.workload, self._base):
                return self.workload
            own = ("batch_size", "budget", "seed", "folder")
            command = command_of_function(self.workload, [*own, *self.grid, *self.search_paths])
        with self._places.errors_at(()):
            return parse_program(
                command,
                files=self.files,
                resume=self.resume,
                metrics=self.metrics,
                devices=self.devices or self.nodes or 1,
                nodes=self.nodes or 1,
                base=self._base,
            )

    @property
    def is_program(self) -> bool:
        """Whether it sweeps a program, or a function."""
        return isinstance(self.spec, Program)

    @property
    def search_paths(self) -> dict[str, Path]:
        """The names below ``search`` of a program, in sections or not, with their places."""
        paths: dict[str, Path] = {}
        for name, value in self.search.items():
            section = isinstance(value, Mapping) and not (len(value) == 1 and {*value} <= {*SCALES})
            inner: Mapping[str, Any] = value if section else {name: value}
            for each in inner:
                paths[each] = ("search", name, each) if section else ("search", name)
        for row in self.points if isinstance(self.points, list) else ():
            paths |= dict.fromkeys(row if isinstance(row, Mapping) else (), ("points",))
        return paths

    @property
    def ratio(self) -> float | None:
        """The ratio of the evaluation grid; ``None``: a program evaluates when it does."""
        return None if self.is_program else self.evaluation_ratio

    def path_of(self, key: str) -> Path:
        """The place of a key that may be in the grid or beside it."""
        return ("grid", key) if key in self.grid else (key,)

    def error(self, path: Path, message: str, hint: str | None = None) -> ExperimentError:
        """An error that begins with the file and the line of ``path``."""
        return self._places.error(path, message, hint)

    def _check_program_keys(self) -> None:
        for key in () if self.is_program else _OF_PROGRAMS:
            if key in self.model_fields_set:
                hint = "program: python train.py --batch_size={batch_size} …, for workload: …"
                raise self.error((key,), f"{key} is of programs, and this is a workload", hint)

    def _check_method(self) -> None:
        """The method must exist, and allow the given ``points`` and ``extend``."""
        name = self.search_method
        if name not in search.METHODS:
            hint = nearest(name, search.METHODS)
            raise self.error(("method",), f"unknown method {name!r}", hint)
        if self.points is None and name == "points":
            hint = "points: [{learning_rate: 0.1}, …]"
            raise self.error(("method",), "method points needs points", hint)
        if self.points is not None and name != "points":
            message = f"points are given, and method is {name}"
            raise self.error(("points",), message, "keep one of the two")
        method = search.METHODS[name]
        if self.extend and method.not_enlargeable:
            names = [each.name for each in search.METHODS.values() if not each.not_enlargeable]
            raise self.error(
                ("extend",),
                f"extend cannot be used with method {name}: {method.not_enlargeable}",
                f"method: {' or '.join(names)}; or widen the ranges of search",
            )

    def _check_stop(self) -> None:
        """Quantities must be those of a curve, and its trials drawn alike from one space."""
        for name in self.stop or ():
            if name not in QUANTITIES:
                message = f"stop: {name!r} is not a quantity of a curve"
                raise self.error(("stop", name), message, nearest(name, QUANTITIES))
        method = search.METHODS[self.search_method]
        if self.stop and not method.alike:
            message = f"stop needs trials that are drawn alike, and those of method {method.name}"
            raise self.error(("stop",), f"{message} are not", "method: sobol or random")
        if self.stop and self.extend:
            message = "stop and extend: a space is searched whole before it is enlarged"
            raise self.error(("stop",), message, "leave one of them out")

    def _check_estimator(self) -> None:
        """A best of ten needs trials that are drawn alike, and ten of them exact."""
        if self.estimator != "best_of_10":
            return
        path, method = ("estimator",), self.search_method
        if not search.METHODS[method].alike:
            raise self.error(
                path,
                f"estimator best_of_10 needs trials that are drawn alike, and those of method "
                f"{method} are not",
                "estimator: minimum, or method: sobol or random",
            )
        if self.keep is not None and self.keep < _BEST_OF:
            message = f"estimator best_of_10 needs the {_BEST_OF} best trials exact: keep is "
            raise self.error(path, f"{message}{self.keep}", f"keep: {_BEST_OF}, or off")
        if self.trials < _BEST_OF:
            message = f"estimator best_of_10 needs at least {_BEST_OF}: trials is {self.trials}"
            raise self.error(path, message, f"trials: {_BEST_OF} or more")


_HINTS = {
    "workload": "for example: workload: digits-mlp, or my_model.py:MyModel",
    "grid": "for example: grid: {batch_size: 8..4096, optimizer: [sgd, momentum]}",
    "extend": "how many times a search space may be enlarged; 0: never",
    "stop": "for example: stop: {critical_batch_size: 1.3}",
    "repeats": "how many fresh seeds the best configurations get; 0: none",
    "name": "letters, digits, dots, dashes and underscores: it names a folder",
    "keep": "a number of trials, or off",
    "schedule": "a name; its arguments are below search: {decay: 0.5}, several names below grid",
}


def _unknown(key: str) -> str | None:
    if key in GRID_KEYS:
        return f"write it below grid: {key}: …"
    return elsewhere(key) or nearest(key, [*ExperimentFile.model_fields, *GRID_KEYS])
