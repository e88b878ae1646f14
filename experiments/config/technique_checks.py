"""Checks before anything is trained: a workload's data and metric, and the file's techniques on its
model, examples and batch sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch.utils.data import IterableDataset

from experiments import parallel, techniques
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.errors import DeviceError, ExperimentError, nearest
from experiments.identity import canonical
from experiments.optimizers.trial_run import OptimizerRun
from experiments.parallel import SOLO
from experiments.plan import Study, Trial
from experiments.precision import Precision
from experiments.techniques import SETTINGS, Techniques
from experiments.training.micro_batch import equal_parts
from experiments.training.splits import Split
from experiments.training.streams import check_stream
from experiments.training.study_context import StudyContext
from workloads import Batch, Workload
from workloads.checks import (
    check_forward,
    check_labels,
    check_metrics,
    check_model,
    check_outputs,
    check_splits,
    length_of,
    target_metric,
)
from workloads.ghost import GHOST_BATCH, has_batch_norm

_CHECKED_HOOKS = (
    "prepare", "model", "augment", "batch", "forward", "criterion", "loss", "check", "optimizer"
)  # fmt: skip
"""Hooks that a workload may not suit."""
_CPU = torch.device("cpu")
_EXAMPLES = 64
_STEPS = 1000


def check_workload(
    file: ExperimentFile,
    workload: Workload,
    data: Mapping[str, Any],
    combinations: Sequence[Combination],
    sizes_of: Callable[[Combination], Sequence[int]],
) -> None:
    """A workload's data, and its model with the techniques of the file, must be such that it can be
    trained to its target.

    Args:
        data: its splits, checked.
        combinations: those of the file.
        sizes_of: the batch sizes of one.

    Raises:
        ExperimentError: they are not; with the place in the file.
        WorkloadError: the workload itself is wrong.
    """
    of_workload = [c for c in combinations if c.workload.fields == workload.fields]
    if workload.fields == combinations[0].workload.fields:
        check_metric(file, workload, data, combinations)
    if isinstance(data["train"], IterableDataset):
        check_stream(data["train"], workload)
    sizes = [sizes_of(combination) for combination in of_workload]
    if any("ghost_batch" not in combination.technique for combination in of_workload):
        _check_ghost_batches(file, workload, sorted({*chain(*sizes)}))
    _check_techniques(file, of_workload, sizes, data)


def check_metric(
    file: ExperimentFile,
    workload: Workload,
    data: Mapping[str, Any],
    combinations: Sequence[Combination],
) -> None:
    """The metric of the targets must exist in each of the combinations, whose first workload it is.

    The workload's metrics are computed of one example of the split, with a new model. This is left
    out for the metric of a packaged workload's own target.

    Raises:
        ExperimentError: no such split or metric.
        WorkloadError: what the workload returns are no metrics.
    """
    target = file.targets_or(workload.target)[-1]  # all of one metric
    path = file.target_path(target)
    split, _, metric = target.metric.partition("_")
    if split == "train" and length_of(data["train"]) is None:
        message = f"target {target.metric}: the training split of {workload.name} has no end"
        raise file.error(path, message, "name a metric of validation or test")
    if split not in data:
        message = f"target {target.metric}: workload {workload.name} has no split {split!r}"
        raise file.error(path, message, f"it has {', '.join(data)}")
    if workload.version and (split, metric) == target_metric(workload):
        return
    example = Split(data[split], workload, _CPU, torch.float32)
    batch = example.fetch(torch.tensor([0]), training=False)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        # Seed the model: if it fails for some weights only, the check must not depend on chance.
        torch.manual_seed(0)
        model = check_model(workload.model(), workload)
        output, metrics = check_forward(workload, model.eval(), batch)
    for examples in data.values():
        check_labels(output, examples, workload)
    check_metrics(metrics, 1, workload)
    check_outputs(output, batch, workload)
    of_split = workload.split_metrics(output, batch[1]) if workload.measures_split else ()
    for combination in {_described(c): c for c in combinations}.values():
        loaded = techniques.load(combination.technique, file.base)
        names = [*metrics, *of_split, *_measured_besides(loaded, workload, batch)]
        if metric not in names:
            labels = [part.label for part in loaded]
            beside = f" with technique {', '.join(labels)}" if labels else ""
            message = f"target {target.metric}: workload {workload.name}{beside} has no metric "
            hint = nearest(target.metric, [f"{split}_{name}" for name in names])
            raise file.error(path, f"{message}{metric!r}", hint)


def _measured_besides(loaded: Techniques, workload: Workload, batch: Batch) -> list[str]:
    """Names of the metrics that techniques add."""
    if not loaded.define("metrics"):
        return []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = loaded.model(workload.model()).eval()
        return list(loaded.metrics({}, workload, model, batch))


def _check_techniques(
    file: ExperimentFile,
    combinations: Sequence[Combination],
    sizes: Sequence[Sequence[int]],
    data: Mapping[str, Any],
) -> None:
    """Each technique must take the workload's model and a batch of its examples, and divide the
    batch sizes that it divides.

    Only what the techniques refuse themselves is an error: whatever else goes wrong comes with the
    command of the trial that shows it.

    Args:
        combinations: those of one workload with its fields.
        sizes: the batch sizes of each, by its place.
        data: the workload's splits, checked.

    Raises:
        ExperimentError: one cannot be used; with its place.
    """
    checked: set[str] = set()
    for place, combination in enumerate(combinations):
        path = combination.paths["technique"]
        # What this machine's processor lacks may be on the device that trains.
        with file.places.errors_at(path), contextlib.suppress(DeviceError):
            loaded = techniques.load(combination.technique, file.base)
            ghost = combination.technique.get("ghost_batch")
            for size in sizes[place]:
                equal_parts(loaded.micro_batches, size, None if ghost is None else int(ghost))
            key = canonical(dict(combination.technique))
            if loaded.define("optimizer"):
                key += combination.optimizer.name
            if key not in checked and loaded.define(*_CHECKED_HOOKS):
                checked.add(key)
                _check_with_workload(file, combination, loaded, min(sizes[place]), data)


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
            path, kind = combination.paths["technique"], _described(combination)
            loaded = techniques.load(combination.technique, file.base)
            of_device = any(part.of_device for part in loaded)
            if device == "cpu" and kind not in checked and of_device:
                checked.add(kind)
                workload = combination.workload
                data = check_splits(workload.data(), workload)
                _check_with_workload(file, combination, loaded, 1, data)
        except DeviceError as error:
            raise file.error(path, str(error), error.hint) from None
        except ExperimentError:
            continue  # ``check_workload`` says so, where the experiment's own batch size has it


def _check_ghost_batches(file: ExperimentFile, workload: Workload, sizes: Sequence[int]) -> None:
    """The ghost batch that nobody has set must divide each batch size, where there is batch norm.

    Raises:
        ExperimentError: it does not; with the place of the batch sizes.
    """
    odd = [size for size in sizes if size % GHOST_BATCH]
    if not odd:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = workload.model()
    if has_batch_norm(model):
        raise file.error(
            file.sizes_path,
            f"batch size {odd[0]} is not a multiple of the ghost batch, which is {GHOST_BATCH} "
            "unless given",
            "set ghost_batch to a divisor, or leave that batch size out",
        )


def _described(combination: Combination) -> str:
    """The techniques of a combination, without settings and further factors."""
    others = {*SETTINGS, "ramp", "rule"}
    return canonical({n: v for n, v in combination.technique.items() if n not in others})


def _check_with_workload(
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
    try:
        check_contract(context, _trial(combination))
        if loaded.define("optimizer"):
            _check_optimizer(context, _trial(combination))
    except ExperimentError:
        raise
    except Exception:
        return  # a user's code may fail in any way


def _check_optimizer(context: StudyContext, trial: Trial) -> None:
    """
    Raises:
        ExperimentError: a technique cannot do with the optimizer what it does.
    """
    with torch.random.fork_rng(devices=[]):
        named = [(n, p) for n, p in context.model(trial).named_parameters() if p.requires_grad]
    values = context.optimizer.arguments_in(trial.metaparameters)
    made = OptimizerRun(context.optimizer, values, named, context.workload)
    context.techniques.optimizer(made.torch)


def _trial(combination: Combination) -> Trial:
    return Trial(id="check", index=0, seed=0, metaparameters=combination.values(0.5))


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
        budget_steps=_STEPS,
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
