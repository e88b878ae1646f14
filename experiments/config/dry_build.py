"""The dry build of an experiment: each distinct kind of study is made once, before any is trained.

Whatever is wrong is said by the owner of the rule (the workload, an optimizer, a schedule, a
technique), and gets the line of the file here.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch.utils.data import IterableDataset

from experiments import parallel, schedules, techniques
from experiments.batch_sizes import BatchSizes
from experiments.canonical import canonical
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.config.targets import check_metric, initialized
from experiments.errors import DeviceError, ExperimentError
from experiments.optimizers import Optimizer
from experiments.optimizers.trial_run import OptimizerRun
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.parallel import SOLO
from experiments.plan import Study, Trial
from experiments.precision import Precision
from experiments.techniques import Techniques
from experiments.training.micro_batch import equal_parts
from experiments.training.splits import Split
from experiments.training.streams import check_stream
from experiments.training.study_context import StudyContext
from workloads import Workload, WorkloadError
from workloads.checks import check_splits, length_of
from workloads.ghost import GHOST_BATCH, has_batch_norm

_CHECKED_HOOKS = (
    "prepare", "model", "augment", "batch", "forward", "criterion", "loss", "check", "optimizer"
)  # fmt: skip
"""Hooks that a workload may not suit."""
_CPU = torch.device("cpu")
_EXAMPLES = 64
_BUDGET_STEPS = 1000
_SCHEDULE_STEPS = 100
"""Steps of a small budget; a schedule must give a factor at each of them."""


class DryBuild:
    """What the studies of an experiment are made of, each kind once.

    A user's optimizer takes three steps on a new model, with metaparameters from the middle of its
    space: it must take the parameters of the workload's model, and go on from its saved state as if
    it had not been stopped. So must one that needs hidden matrices, and each where a user's
    workload has parameter groups. A user's schedule must have its arguments and give a factor at
    every step, with metaparameters from the middle and from both ends of its space. A technique
    must take the workload's model and a batch of its examples.
    """

    def __init__(self, file: ExperimentFile, combinations: Sequence[Combination]) -> None:
        self._file, self._combinations = file, combinations
        self._train_sizes: dict[str, int | None] = {}
        self._splits: tuple[str, Mapping[str, Any]] = "", {}
        """Of the last workload: those of all of them might not fit into memory."""
        self._norms: dict[str, bool] = {}
        self._built: set[tuple[str, ...]] = set()

    def train_size(self, combination: Combination) -> int | None:
        """Examples of the training set; ``None`` if it has no end, or is a program's.

        Raises:
            ExperimentError: the targets' metric is not in the data; with its place.
            WorkloadError: the data cannot be loaded, or the workload breaks its contract; with the
                place of a field that the error names.
        """
        if self._file.is_program:
            return None
        key = canonical(combination.workload.fields)
        if key not in self._train_sizes:
            splits = self._load(combination)
            if not self._train_sizes:
                check_metric(self._file, combination.workload, splits, self._combinations)
            if isinstance(splits["train"], IterableDataset):
                check_stream(splits["train"], combination.workload)
            self._train_sizes[key] = length_of(splits["train"])
        return self._train_sizes[key]

    def _load(self, combination: Combination) -> Mapping[str, Any]:
        workload = combination.workload
        key = canonical(workload.fields)
        if self._splits[0] != key:
            try:
                self._splits = key, check_splits(workload.data(), workload)
            except WorkloadError as error:
                names = re.findall(r"\w+", str(error))
                named = [name for name in names if name in combination.fields]
                place = self._file.places.at(combination.paths[named[0]]) if named else ""
                if not place:
                    raise
                raise WorkloadError(f"{place}: {error}", hint=error.hint) from None
        return self._splits[1]

    def build(self, combination: Combination, batches: Sequence[BatchSizes]) -> None:
        """Make what is new in the studies of ``combination``, whose batches these are.

        Only what techniques refuse themselves is an error: whatever else goes wrong with one comes
        with the command of the trial that shows it.

        Raises:
            ExperimentError: an owner refuses it; with its place. What a user's own optimizer or
                schedule raises passes unchanged.
        """
        if self._file.is_program:
            return
        places, paths = self._file.places, combination.paths
        workload, optimizer = combination.workload, combination.optimizer
        schedule, fields = combination.schedule, canonical(workload.fields)
        for each in batches:
            self._check_ghost_batches(combination, each)
        users = type(workload).parameter_groups is not Workload.parameter_groups
        of_users = isinstance(optimizer, UserOptimizer) or (users and workload.version is None)
        needs_run = optimizer.uses_hidden or of_users
        if needs_run and self._first("optimizer", optimizer.name):
            with places.errors_at(paths["optimizer"]):
                _check_optimizer(combination)
        of_user = schedule.name not in schedules.names()
        if of_user and self._first("schedule", schedule.name, optimizer.name):
            with places.errors_at(paths["schedule"]):
                _check_schedule(combination)
        # What this machine's processor lacks may be on the device that trains.
        with places.errors_at(paths["technique"]), contextlib.suppress(DeviceError):
            loaded = techniques.load(combination.technique, self._file.base)
            _check_averages(optimizer, loaded)
            ghost = combination.technique.get("ghost_batch")
            for each in batches:
                equal_parts(loaded.micro_batches, each.batch_size, ghost and int(ghost))
            described = canonical(dict(combination.technique))
            with_optimizer = optimizer.name if loaded.define("optimizer") else ""
            hooks = loaded.define(*_CHECKED_HOOKS)
            if hooks and self._first("technique", described, with_optimizer, fields):
                size, splits = batches[0].batch_size, self._load(combination)
                _build_techniques(self._file, combination, loaded, size, splits)

    def _first(self, *kind: str) -> bool:
        """Whether nothing of this kind was made before."""
        new = kind not in self._built
        self._built.add(kind)
        return new

    def _check_ghost_batches(self, combination: Combination, batches: BatchSizes) -> None:
        """Batches and micro-batches are made of whole ghost batches, given or usual ones.

        Raises:
            ExperimentError: one is not; with its place.
        """
        file, given = self._file, combination.technique.get("ghost_batch")
        ghost = GHOST_BATCH if given is None else int(given)
        first, micro = batches.batch_size, (given and file.micro_batch) or ghost
        odd = [f"micro_batch {micro}"] if micro % ghost else []
        odd += [
            f"batch size {size}" + (f", by the ramp from {first}," if size != first else "")
            for size in batches.sizes
            if size % ghost
        ]
        if not odd or (given is None and not self._normed(combination.workload)):
            return
        path = file.sizes_path if given is None else file.path_of("ghost_batch")
        usual = " unless given" if given is None else ""
        message = f"{odd[0]} is not a multiple of the ghost batch, which is {ghost}{usual}"
        hint = "set ghost_batch to a divisor, or choose another size"
        raise file.error(path, message, hint)

    def _normed(self, workload: Workload) -> bool:
        """Whether its model has batch norm."""
        key = canonical(workload.fields)
        if key not in self._norms:
            self._norms[key] = has_batch_norm(initialized(workload))
        return self._norms[key]


def check_device(
    file: ExperimentFile, combinations: Sequence[Combination], device: str | None
) -> None:
    """The device on which the experiment is trained must have its precisions, and the kernels that
    techniques choose.

    Args:
        device: ``cpu`` or ``cuda``; nothing is checked where it is not known.

    Raises:
        ExperimentError: it does not; with the place in the file.
    """
    if device is None:
        return
    checked: set[str] = set()
    for combination in combinations:
        path = file.path_of("precision")
        try:
            Precision.of(combination.technique, device)
            path, kind = combination.paths["technique"], combination.techniques_alone
            loaded = techniques.load(combination.technique, file.base)
            of_device = any(part.of_device for part in loaded)
            if device == "cpu" and kind not in checked and of_device:
                checked.add(kind)
                workload = combination.workload
                data = check_splits(workload.data(), workload)
                _build_techniques(file, combination, loaded, 1, data)
        except DeviceError as error:
            raise file.error(path, str(error), error.hint) from None
        except ExperimentError:
            continue  # ``DryBuild`` says so, where the experiment's own batch size has it


def _check_optimizer(combination: Combination) -> None:
    optimizer, workload = combination.optimizer, combination.workload
    values, model = combination.values(0.5), initialized(workload)
    whole = OptimizerRun(optimizer, values, model, workload)
    for _ in range(2):
        whole.step()
    resumed = OptimizerRun(optimizer, values, model, workload)
    resumed.save_and_load(whole)
    for run in (whole, resumed):
        run.step()
    if whole.differs(resumed.parameters):
        raise ExperimentError(
            f"optimizer {optimizer.name} continues differently after its state is saved and "
            "loaded, so that a stopped trial could not be resumed",
            hint="keep its state in self.state and in the parameter groups, or define state_dict "
            "and load_state_dict",
        )


def _check_schedule(combination: Combination) -> None:
    schedule = combination.schedule
    for u in (0.5, 0.0, 1.0):
        arguments = {n: v for n, v in combination.values(u).items() if n in schedule.arguments}
        resolved = schedule.resolve(arguments, _SCHEDULE_STEPS, batch_size=1, tokens_per_example=1)
        for name in schedule.required:
            if name not in resolved:
                short = next(iter(schedule.other_forms(name)), name)
                raise ExperimentError(
                    f"schedule {schedule.label} needs a value of {short}",
                    hint=f"in an experiment: search: {{{short}: …}}; or a space, or a default in "
                    "its shape",
                )
        for step in range(_SCHEDULE_STEPS):
            factor: Any = schedule.factor(step, resolved)
            if not isinstance(factor, Real) or not 0 <= float(factor) < math.inf:
                values = ", ".join(f"{name} {value}" for name, value in sorted(resolved.items()))
                raise ExperimentError(
                    f"schedule {schedule.label}: its shape gives {factor!r} at step {step} of "
                    f"{_SCHEDULE_STEPS} with {values or 'no arguments'}",
                    hint="return a number from 0 on: what the learning rate is multiplied by",
                )


def _check_averages(optimizer: Optimizer, loaded: Techniques) -> None:
    """Evaluations measure one average of the weights, the optimizer's or a technique's.

    Raises:
        ExperimentError: both have one: the technique would measure an average of the trained
            weights, not of the optimizer's. Or the technique moves the trained weights, which are
            not the ones that the optimizer averages.
    """
    for part in loaded if optimizer.averages else ():
        if part.follows_average:
            continue
        if part.defines("evaluated"):
            raise ExperimentError(
                f"technique {part.label} and optimizer {optimizer.label} both make evaluations "
                "measure other weights than those that are trained",
                hint=f"leave {part.label} out, or choose an optimizer that averages nothing, such "
                "as adamw",
            )
        if part.defines("before_step") or part.defines("after_step"):
            raise ExperimentError(
                f"technique {part.label} moves the trained weights, and optimizer "
                f"{optimizer.label} averages others, which stay",
                hint="to decay weights, tune the optimizer's own weight_decay; or choose an "
                "optimizer that averages nothing, such as adamw",
            )


def _build_techniques(
    file: ExperimentFile,
    combination: Combination,
    loaded: Techniques,
    batch_size: int,
    data: Mapping[str, Any],
) -> None:
    if isinstance(data["train"], IterableDataset):  # reading it may have begun a process
        return
    from experiments.engines import check_contract  # its imports take long, and few files need it

    context = _context(file, combination, loaded, batch_size, data)
    trial = Trial(id="check", index=0, seed=0, metaparameters=combination.values(0.5))
    try:
        check_contract(context, trial)
        if loaded.define("optimizer"):
            with torch.random.fork_rng(devices=[]):
                model = context.model(trial)
            run = OptimizerRun(context.optimizer, trial.metaparameters, model, context.workload)
            context.techniques.optimizer(run.torch)
    except ExperimentError:
        raise
    except Exception:
        return  # a user's code may fail in any way


def _context(
    file: ExperimentFile,
    combination: Combination,
    loaded: Techniques,
    batch_size: int,
    data: Mapping[str, Any],
) -> StudyContext:
    """A study of few examples on this machine's processor."""
    precision = "float64" if combination.technique.get("precision") == "float64" else "float32"
    study = Study(
        id="check",
        experiment=file.name,
        workload=combination.workload_ref(file),
        optimizer=combination.optimizer.name,
        schedule=combination.schedule.name,
        technique=combination.technique,
        batch_size=batch_size,
        trials=1,
        budget_steps=_BUDGET_STEPS,
        targets=(),
    )
    of_type = Precision(name=precision, device=_CPU)
    workload = combination.workload
    context = StudyContext(
        study=study,
        workload=workload,
        splits={
            name: Split(split, workload, _CPU, of_type.dtype, name).head(_EXAMPLES)
            for name, split in data.items()
            if not isinstance(split, IterableDataset)
        },
        device=_CPU,
        dtype=of_type.dtype,
        precision=of_type,
        layout=parallel.of(study.layout).join(SOLO),
        optimizer=combination.optimizer,
        schedule=combination.schedule,
        techniques=loaded.with_budget(study.budget_steps),
    )
    return replace(context, techniques=context.techniques.prepare(context))
