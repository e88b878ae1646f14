"""What an experiment asks of its workload's metrics: that its targets can be measured and meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from experiments.errors import nearest
from experiments.training.splits import Split
from workloads import Workload, WorkloadError
from workloads.checks import check_metrics, check_target, target_metric

if TYPE_CHECKING:
    from experiments.config.experiment import Experiment


def check_directions(experiment: Experiment, workload: Workload) -> None:
    """Each target must name a split and point the way in which its metric is better.

    Raises:
        ExperimentError: a target does not.
    """
    _, own_metric = target_metric(workload)
    for target in experiment.targets:
        path = experiment.target_path(target)
        try:
            check_target(str(target), "the experiment")
        except WorkloadError as error:
            raise experiment.error(path, str(error), error.hint) from None
        metric = target.metric.partition("_")[2]
        if metric == own_metric and target.lower_is_better != ("<" in workload.target):
            raise experiment.error(
                path,
                f"target {target} points the other way than the workload's own ({workload.target})",
                "turn the sign",
            )


def check_metric(experiment: Experiment, workload: Workload, data: Mapping[str, Any]) -> None:
    """The targets' metric must be there.

    The workload is asked: its metrics are taken of one example of the split, with a new model. Its
    own metric needs no asking where the package brings the workload.

    Args:
        data: the workload's splits, checked.

    Raises:
        ExperimentError: no such split or metric.
        WorkloadError: what the workload returns are no metrics.
    """
    target = experiment.targets[-1]
    path = experiment.target_path(target)
    split, _, metric = target.metric.partition("_")
    if split not in data:
        raise experiment.error(
            path,
            f"target {target.metric}: workload {workload.name} has no split {split!r}",
            f"it has {', '.join(data)}",
        )
    if workload.version and (split, metric) == target_metric(workload):
        return
    example = Split(data[split], workload, torch.device("cpu"), torch.float32)
    batch = example.fetch(torch.tensor([0]), training=False)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        # The same model whatever was drawn before: a model that fails for some weights must not
        # make a sweep's start a matter of luck.
        torch.manual_seed(0)
        metrics = workload.metrics(workload.forward(workload.model().eval(), batch), batch)
    check_metrics(metrics, 1, workload)
    if metric not in metrics:
        raise experiment.error(
            path,
            f"target {target.metric}: workload {workload.name} has no metric {metric!r}",
            nearest(target.metric, [f"{split}_{name}" for name in metrics]),
        )
