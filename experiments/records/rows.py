"""Rows of the results tables from studies, trials, measurements and outcomes."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import workloads
from experiments.plan import Layout, Measurement, Outcome, Study, Trial
from results.schema import TRIALS
from workloads import Workload

_PACKAGES = ("batchscale", "torch", "torchvision", "numpy", "ray")


def study_columns(study: Study, workload: Workload) -> dict[str, Any]:
    """The columns that a study's row and its trials' rows share."""
    identity = workloads.identity(workload)
    return {
        "experiment": study.experiment,
        "study": study.id,
        "workload": workload.name,
        "workload_version": identity.get("source") or identity.get("version"),
        "dataset": workload.dataset,
        "model": workload.model_name,
        "optimizer": study.optimizer_label,
        "schedule": study.schedule_label,
        "technique": study.technique_by_label,
        "batch_size": study.batch_size,
        "example_unit": workload.example_unit,
        "tokens_per_example": workload.tokens_per_example,
        "fields": dict(workload.fields),
        "trials_wanted": study.trials,
        "budget_steps": study.budget_steps,
        "train_examples": study.train_examples,
        "evaluation_ratio": study.evaluation_ratio,
        "keep": study.keep,
        "stop_at_target": study.stop_at_target,
        "search": study.search,
        "estimator": study.estimator,
        "refine_ratio": study.refine,
    }


def trial_row(
    columns: Mapping[str, Any],
    study: Study,
    trial: Trial,
    outcome: Outcome,
    *,
    pack: str,
    pack_models: int,
    engine: str,
    device: str,
    world_size: int,
    effective_learning_rate: float | None,
) -> dict[str, Any]:
    """The row of a trial that has ended; ``columns`` from ``study_columns``."""
    target = study.targets[-1]
    usual = {
        name: value
        for name, value in trial.metaparameters.items()
        if name in TRIALS.names and name not in columns
    }
    return {
        **columns,
        **usual,
        "trial": trial.id,
        "index": trial.index,
        "seed": trial.seed,
        "search_id": study.search_id,
        "search_seed": trial.search_seed,
        "other_searches": dict(trial.other_searches) or None,
        "enlargement": trial.enlargement,
        "role": trial.role,
        "round": trial.round,
        "effective_learning_rate": effective_learning_rate,
        "metaparameters": dict(trial.metaparameters),
        "status": outcome.status,
        "stop_reason": outcome.stop_reason,
        "target_metric": target.metric,
        "target_value": target.value,
        "lower_is_better": target.lower_is_better,
        "steps_to_target": outcome.steps_to_target,
        "last_miss": outcome.last_miss,
        "refined_steps": outcome.refined_steps,
        "refined_last_miss": outcome.refined_last_miss,
        "steps_run": outcome.steps_run,
        "examples_run": outcome.examples_run,
        "train_seconds": outcome.train_seconds,
        "evaluation_seconds": outcome.evaluation_seconds,
        "other_seconds": outcome.other_seconds,
        "pack": pack,
        "pack_models": pack_models,
        "engine": engine,
        "device": device,
        "layout": layout_columns(study.layout),
        "world_size": world_size,
        "precision": str(study.technique.get("precision", "float32")),
        "micro_batch": study.layout.micro_batch,
        "error": outcome.error,
        "versions": versions(),
    }


def effective_learning_rate(study: Study, trial: Trial) -> float | None:
    """What a registered optimizer says it is; null for those without that meaning.

    A user's file is not imported for it: a trial that failed in that import gets its row too.
    """
    from experiments import optimizers

    if study.optimizer not in optimizers.names():
        return None
    return optimizers.get(study.optimizer).effective_learning_rate(trial.metaparameters)


def measurement_row(measurement: Measurement) -> dict[str, Any]:
    """The row of one evaluation (its trial's row tells the rest)."""
    return {
        "trial": measurement.trial,
        "step": measurement.step,
        "examples": measurement.examples,
        "train_seconds": measurement.train_seconds,
        "metrics": dict(measurement.metrics),
    }


def layout_columns(layout: Layout) -> dict[str, Any]:
    """A layout as JSON text has it, without what is not set."""
    return {key: value for key, value in asdict(layout).items() if value is not None}


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what decides a trial's numbers, as installed here."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit(folder: str | None) -> str | None:
    """The commit that the user's folder stands at, ``None`` where it is no git checkout."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=folder or ".",
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def device_name(device: str) -> str:
    """``cpu``, or what the GPU calls itself."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)
