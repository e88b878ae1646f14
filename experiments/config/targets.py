"""The targets of an experiment: what a file says, and their metric in the workload's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from experiments import techniques
from experiments.config.combinations import Combination
from experiments.config.schema import ExperimentFile
from experiments.config.yaml_lines import Path
from experiments.errors import ExperimentError, nearest
from experiments.training.splits import Split
from results.counts import count
from results.errors import ResultsError
from results.targets.target import Target
from workloads import Workload, WorkloadError
from workloads.checks import (
    check_forward,
    check_labels,
    check_metrics,
    check_model,
    check_outputs,
    check_target,
    length_of,
    target_metric,
)
from workloads.user_code.program import Program

_MOST_TARGETS = 100
_CPU = torch.device("cpu")


def read_targets(file: ExperimentFile, workload: Workload) -> tuple[Target, ...]:
    """The targets of a file, easiest first; the workload's own if it names none.

    Raises:
        ExperimentError: they are of several metrics; one is no target, names no split, is given
            twice, or has the direction in which its metric is worse; with its place.
    """
    if len(file.target) > _MOST_TARGETS:
        message = count(len(file.target), "target")
        raise file.error(("target",), message, f"at most {_MOST_TARGETS}")
    own = None if isinstance(workload, Program) else workload.target
    of_workload, targets = own and Target.parse(own), list[Target]()
    for i, text in enumerate(file.target or ([own] if own else [])):
        path: Path = ("target", i) if file.target else ("workload",)
        with file.places.errors_at(path, ExperimentError, ResultsError, WorkloadError):
            target = Target.parse(text)
            first = targets[0] if targets else target
            if target.metric != first.metric:
                message = f"targets of two metrics: {first.metric} and {target.metric}"
                hint = "training stops at the hardest target, so all must have the same metric"
                raise ExperimentError(message, hint=hint)
            if target in targets:
                raise ExperimentError(f"target {target} is given twice", hint="keep one")
            name, lower = target.metric.partition("_")[2], target.lower_is_better
            if of_workload:  # a program calls its metrics as it likes
                check_target(str(target), "the experiment")
                alike = name == of_workload.metric.partition("_")[2]
                if alike and lower != of_workload.lower_is_better:
                    message = f"target {target} has another direction than the workload's target"
                    raise ExperimentError(f"{message} ({own})", hint="reverse the sign")
            if lower != first.lower_is_better:
                raise ExperimentError(f"targets {first} and {target} have opposite directions")
            targets.append(target)
    return tuple(sorted(targets, key=lambda t: t.value, reverse=targets[0].lower_is_better))


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
    target = read_targets(file, workload)[-1]  # all of one metric
    given = [Target.parse(text) for text in file.target]
    path: Path = ("target", given.index(target)) if given else ("workload",)
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
        output, metrics = check_forward(workload, initialized(workload).eval(), batch)
    for examples in data.values():
        check_labels(output, examples, workload)
    check_metrics(metrics, 1, workload)
    check_outputs(output, batch, workload)
    of_split = workload.split_metrics(output, batch[1]) if workload.measures_split else ()
    for combination in {c.techniques_alone: c for c in combinations}.values():
        loaded = techniques.load(combination.technique, file.base)
        names = [*metrics, *of_split]
        if loaded.define("metrics"):
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(0)
                model = loaded.model(workload.model()).eval()
                names += loaded.metrics({}, workload, model, batch)
        if metric not in names:
            labels = [part.label for part in loaded]
            beside = f" with technique {', '.join(labels)}" if labels else ""
            message = f"target {target.metric}: workload {workload.name}{beside} has no metric "
            hint = nearest(target.metric, [f"{split}_{name}" for name in names])
            raise file.error(path, f"{message}{metric!r}", hint)


def initialized(workload: Workload) -> nn.Module:
    """A new model, always with the same weights: where it fails for some weights only, a check must
    not depend on chance.

    Raises:
        WorkloadError: it is no module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return check_model(workload.model(), workload)
