"""From an experiment file to studies: every combination of its grid, checked and identified."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from experiments.canonical import digest
from experiments.config import load as reading
from experiments.config import yaml_lines
from experiments.config.combinations import Combination, at_steps, combinations
from experiments.config.dry_build import DryBuild
from experiments.config.program_grid import OF_WORKLOADS
from experiments.config.schema import EITHER_KEYS, ExperimentFile
from experiments.config.sized import Sized, batch_sizes, check_units
from experiments.config.targets import read_targets
from experiments.config.tuning import Tuning
from experiments.config.yaml_lines import Places
from experiments.factors.target_share import in_text
from experiments.parallel.configuration import layout_of
from experiments.plan import BaselineSteps, Layout, Study
from experiments.search import METHODS, table
from results.targets.target import Target
from workloads.user_code.program import Program

__all__ = ["Experiment", "from_keywords", "load", "parse"]


class Experiment(ExperimentFile):
    """The keys of an experiment file, and the combinations of its grid.

    ``load``, ``parse`` and ``from_keywords`` make one.
    """

    _combinations: list[Combination] = PrivateAttr()
    _tuning: Tuning = PrivateAttr()

    @classmethod
    def checked(cls, data: dict[str, Any], places: Places, base: str) -> Self:
        """Check the file and, as far as possible without the data set, its grid.

        Raises:
            ExperimentError: a key or a value that cannot be; with its line.
            WorkloadError: the workload itself is wrong.
        """
        experiment = super().checked(data, places, base)
        experiment._combinations, experiment._tuning = combinations(experiment)
        _ = experiment.batch_sizes, experiment.parsed_budget, experiment._layout
        for combination in experiment.combinations:
            check_units(experiment, combination)
        _ = experiment.targets
        return experiment

    @property
    def combinations(self) -> Sequence[Combination]:
        """Training algorithms and fields of the workload, in the order of the grid."""
        return self._combinations

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """Easiest first, all of one metric; the workload's own if the file names none."""
        return read_targets(self, self.combinations[0].workload)

    @property
    def notes(self) -> list[str]:
        """Warnings about settings that are legal but perhaps not intended."""
        notes = [
            f"search.{name} is not used: more specific entries of search, points or a rule give it."
            for name, each in self._tuning.general.items()
            if all(combination.paths.get(name) != each.path for combination in self.combinations)
        ]
        if self.keep is None or self.keep <= self.trials or "keep" not in self.model_fields_set:
            return notes
        exact = "every trial stays exact, none is dominated."
        return [*notes, f"keep is {self.keep} and trials {self.trials}: {exact}"]

    def studies(
        self, source: str | None = None, known: BaselineSteps = lambda _: None
    ) -> list[Study]:
        """The studies: combinations of the grid in its order, batch sizes ascending.

        Reads the workload's data (for the size of its training set).

        Args:
            source: hash of the workload's code that identities hold instead of the present one (an
                earlier run's ``workload_version``), so that its results count as this experiment's.
            known: steps to target of baselines; a study that needs others ``waits``.

        Raises:
            ExperimentError: a batch size, budget or target that the data cannot have; an optimizer
                that does not take the model's parameters; a schedule that gives no factor.
            WorkloadError: the data cannot be loaded.
        """
        dry, studies = DryBuild(self, self.combinations), list[Study]()
        for combination in self.combinations:
            train_size = dry.train_size(combination)
            sizes = [
                Sized(
                    file=self,
                    combination=combination,
                    batch_size=batch_size,
                    train_size=train_size,
                    source=source,
                )
                for batch_size in batch_sizes(self, combination, train_size)
            ]
            new = [self._study(sized, known) for sized in sizes]
            dry.build(combination, [study.batches for study in new])
            studies += new
        return studies

    def to_yaml(self) -> str:
        """The resolved file, with all defaults and search spaces. Loaded again (with the same base
        folder), it gives the same studies and trials."""
        optimizers = list({c.optimizer.name: c.optimizer for c in self.combinations}.values())
        schedules = list({c.schedule.name: c.schedule for c in self.combinations}.values())
        left_out = {"keep", "files", *(self.grid.keys() & EITHER_KEYS)}
        left_out |= {"design"} if self.design == "product" else set()
        if self.is_program:
            left_out |= {*OF_WORKLOADS, *(["workload"] if self.program else [])}
        data = self.model_dump(exclude_none=True, exclude=left_out)
        if self.points is not None:  # their number, where the file has no `trials`
            data["trials"] = max(map(self._trials, self.combinations))
        sizes = [size if isinstance(size, int) else str(size) for size in self.batch_sizes]
        fields = self.combinations[0].workload.fields
        written: Any = sizes[0] if len(sizes) == 1 else sizes
        if isinstance(self.grid["batch_size"], Mapping):
            written = {**self.grid["batch_size"], "from": written}
        data |= {
            "grid": {**self.grid, "batch_size": written},
            "search": self._tuning.written(optimizers, schedules, fields),
            "budget": str(self.parsed_budget),
            "target": [str(target) for target in self.targets],
            "keep": "off" if self.keep is None else self.keep,
            "method": self.search_method,
        }
        if not self.is_program:
            data["workers"] = self._layout.workers
        if self.files:
            data["files"] = list(self.files)
        return yaml_lines.write(data)

    def _trials(self, combination: Combination) -> int:
        """Feasible trials of each of its studies: of points at most as many as there are."""
        if self.points is not None:
            points = len(combination.search.points)
            return min(points, self.trials) if "trials" in self.model_fields_set else points
        if METHODS[self.search_method].rounds_up:
            size = table(self.search_method, combination.search.space, 0, self.trials).size
            return size or self.trials
        return self.trials

    def _study(self, sized: Sized, known: BaselineSteps) -> Study:
        written = combination = sized.combination
        sized.check()
        to_target = None
        if written.baseline and self.stop:
            message = "stop: lengths of the baseline's steps need the whole search of the baseline"
            raise self.error(("stop",), message, "leave stop out, or give the lengths in steps")
        baseline = [self._study(sized.with_combination(each), known) for each in written.baseline]
        if baseline and (to_target := known(baseline[0].id)) is not None:
            combination = at_steps(self, written, baseline[0], to_target)
            sized = sized.with_combination(combination)
        study_id, described = sized.id, sized.identity
        if baseline:  # a study is one as it is written, its trials are by what that comes to
            written_id = sized.with_combination(replace(written, ramp=None)).id
            if written_id != study_id:
                study_id, described = written_id, {**described, "study": written_id}
        search, table_from, points_from = combination.search, None, None
        rule = search.rule
        if rule is not None and rule.transfers and rule.base is not None:
            table_from = replace(
                sized, combination=combination.without_rule, batch_size=rule.base
            ).id
        elif combination.points_from is not None and not combination.replicate:
            points_from = sized.with_combination(combination.points_from).id
        optimizer, schedule = combination.optimizer, combination.schedule
        return Study(
            id=study_id,
            identity=described,
            experiment=self.name,
            workload=combination.workload_ref(self),
            optimizer=optimizer.name,
            optimizer_name=optimizer.display_name,
            schedule=schedule.name,
            schedule_name=schedule.display_name,
            technique=combination.technique,
            written_technique=in_text(written.technique) if baseline else None,
            batch_size=sized.batch_size,
            baseline_steps=to_target,
            baseline=tuple(study.id for study in baseline),
            ramp=sized.ramp,
            trials=self._trials(combination),
            budget_steps=sized.budget_steps,
            repeat_data=self.repeat_data,
            train_examples=sized.train_size,
            targets=self.targets,
            stop_at_target=self.stop_at_target,
            keep=None if table_from else self.keep,  # the best points of the base stay exact
            evaluation_ratio=self.ratio,
            evaluate=self.evaluate,
            search=replace(
                search,
                id=self._search_id(sized, to_target, points_from),
                table_from=table_from or points_from,
                extend=0 if table_from else search.extend,
            ),
            stops_itself=bool(self.stop),
            estimator=self.estimator,
            engine=self.engine,
            layout=self._layout,
            replicate=combination.replicate,
        )

    @functools.cached_property
    def _layout(self) -> Layout:
        layout = layout_of(
            self.layout,
            self.workers if "workers" in self.model_fields_set else None,
            [combination.workload for combination in self.combinations],
            self.base,
            lambda key, *error: self.error(("layout", key) if key else ("layout",), *error),
        )
        if layout.workers > 1 and self.gpus not in (None, 1.0):
            # NCCL refuses two ranks on one GPU.
            message = "each of several workers of a pack needs a GPU of its own"
            message = f"gpus: {self.gpus} and workers: {layout.workers}: {message}"
            raise self.error(("gpus",), message, "leave gpus out, or set workers: 1")
        gpus = float(self.devices or self.gpus or 0.0)
        if isinstance(self.spec, Program):  # a worker for each of its machines
            nodes = self.spec.nodes
            layout, gpus = replace(layout, workers=nodes), gpus / nodes
        return replace(layout, micro_batch=self.micro_batch, gpus_per_worker=gpus)

    def _search_id(self, sized: Sized, to_target: int | None, like: str | None) -> str:
        """The description of a search without its seed: all that decides which points its table
        holds.

        Shares of the budget resolve to steps, so that another budget is another table; a grid has
        more levels for more trials.
        """
        combination, search = sized.combination, sized.combination.search
        described: dict[str, Any] = {
            "method": search.method,
            "space": {name: each.notation() for name, each in search.space.items()},
            "fixed": dict(search.fixed),
            "points": list(search.points),
        }
        if METHODS[search.method].rounds_up:
            described["trials"] = self._trials(combination)
        if like is not None:
            described["points_of"] = like
        if search.rule is not None:
            described["rule"] = str(search.rule)
        if combination.baseline:
            described["baseline_steps"] = to_target
        if combination.schedule.shares.keys() & {*search.space, *search.fixed}:
            described["budget_steps"] = sized.schedule_steps
        return digest(described)


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment; the data set is not read yet.

    Args:
        source: the path of a YAML file (``.yaml``, ``.yml``, or with a ``/``), the name of one that
            comes with the package (``digits``), or a file's content as a mapping.
        overrides: ``key=value`` each, as ``--set`` takes them: ``grid.batch_size=1..64``.

    Raises:
        ExperimentError: the file cannot be read, or a key or value is wrong; with its line.
        WorkloadError: the workload itself is wrong.
    """
    return _compile(reading.read_source(source, overrides))


def from_keywords(**values: Any) -> Experiment:
    """An experiment of Python's keywords.

    ``from_keywords(workload=MyModel, optimizer=["sgd"], batch_size="8..1024", trials=16)``: keys of
    the file, of its grid, fields of the workload and metaparameters (a value or a range) alike.
    ``workload`` may be a class or an object, and so may an optimizer be a class.

    Raises:
        ExperimentError: an unknown keyword, a value that cannot be, a class in no file.
        WorkloadError: the workload itself is wrong.
    """
    return _compile(reading.read_keywords(values))


def parse(
    text: str,
    source: str = "experiment.yaml",
    overrides: Sequence[str] = (),
    *,
    base: Path | None = None,
    name: str | None = None,
) -> Experiment:
    """Read an experiment's YAML text.

    The packages of its method need not be installed: a recorded experiment is read, not searched.

    Args:
        source: what errors call it.
        base: the folder that its relative paths start from; the current one unless given.
        name: the experiment's, where the text does not say it.

    Raises:
        ExperimentError: it is not an experiment.
        WorkloadError: the workload itself is wrong.
    """
    return _compile(reading.read_text(text, source, overrides, base or Path.cwd(), name))


def _compile(content: reading.Content) -> Experiment:
    return Experiment.checked(content.data, content.places, str(content.base))
