"""Rows of the results tables from studies, trials, measurements and outcomes."""

from __future__ import annotations

import bisect
import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import workloads
from experiments.plan import Layout, Outcome, Study, Trial
from experiments.scheduling.messages import Assignment
from results.schema import TRIALS
from results.store import Store
from workloads import Workload

_OF_THE_STUDY = (
    *("batch_size", "budget_steps", "train_examples", "evaluation_ratio"),
    *("keep", "stop_at_target", "estimator", "replicate", "baseline_steps"),
)
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
        "example_unit": workload.example_unit,
        "tokens_per_example": workload.tokens_per_example,
        "fields": workload.fields_of_identity(stated=study.workload.fields),
        "trials_wanted": study.trials,
        "search": study.search.method,
        "batch_sizes": study.ramp
        and {
            "starts": list(study.ramp.starts),
            "sizes": list(study.ramp.sizes),
            "schedule_steps": study.schedule_steps,
        },
        **{name: getattr(study, name) for name in _OF_THE_STUDY},
    }


def trial_row(
    columns: Mapping[str, Any], study: Study, trial: Trial, outcome: Outcome, **of_the_pack: Any
) -> dict[str, Any]:
    """The row of a trial that has ended.

    Args:
        columns: from ``study_columns``.
        of_the_pack: ``pack``, ``pack_models``, ``engine``, ``device`` and ``world_size``.
    """
    target, program = study.targets[-1], study.workload.program
    usual = {
        name: value
        for name, value in trial.metaparameters.items()
        if name in TRIALS.names and name not in columns
    }
    return {
        **columns,
        **usual,
        **asdict(outcome),
        **of_the_pack,
        "index": trial.index,
        "seed": trial.seed,
        "search_id": study.search.id,
        "search_seed": study.search.seed,
        "other_searches": dict(trial.other_searches) or None,
        "enlargement": trial.enlargement,
        "role": trial.role,
        "round": trial.round,
        "acts_from": None if outcome.error else acts_from(study, trial),
        "effective_learning_rate": effective_learning_rate(study, trial),
        "metaparameters": dict(trial.metaparameters),
        "target_metric": target.metric,
        "target_value": target.value,
        "lower_is_better": target.lower_is_better,
        "layout": layout_columns(study.layout),
        "precision": None if program else str(study.technique.get("precision", "float32")),
        "micro_batch": outcome.micro_batch or study.layout.micro_batch,
        "versions": versions(),
    }


def record_lost_trial(store: Store, assignment: Assignment, outcome: Outcome) -> str | None:
    """Write the row of a trial that failed with its worker, which could not; its ``run``."""
    pack = assignment.pack
    row = trial_row(
        assignment.columns,
        pack.study,
        next(trial for trial in pack.trials if trial.id == outcome.trial),
        outcome,
        pack=pack.id,
        pack_models=len(pack.trials),
        engine=None if pack.engine == "auto" else pack.engine,
        device=assignment.device,
        world_size=pack.study.layout.workers,
    )
    return store.commit(pack.study.experiment, measurements=[], trials=[row])


def acts_from(study: Study, trial: Trial) -> dict[str, int]:
    """Updates before each part of the training algorithm acts in this trial, by technique,
    ``schedule`` or ``ramp``; without those that act in the first one. User files are loaded."""
    from experiments import schedules, techniques

    if study.workload.program is not None:
        return {}
    base, batches = study.workload.base, study.batches
    parts = techniques.load(study.technique, base).with_budget(study.technique_steps)
    begins = {part.label: part.acts_from for part in parts.of_trial(trial.metaparameters)}
    begin = schedules.get(study.schedule, base).acts_from(trial.metaparameters)
    # A schedule counts steps of the first batch size.
    every = range(study.budget_steps + 1)
    begins["schedule"] = bisect.bisect_left(
        every, float(begin), key=lambda step: float(batches.schedule_step(step))
    )
    begins["ramp"] = batches.steps_to_change(0) or 0
    return {name: steps for name, steps in begins.items() if steps}


def effective_learning_rate(study: Study, trial: Trial) -> float | None:
    """The effective learning rate of a packaged optimizer; null if it has no such meaning.

    A user's file is not imported for it: a trial that failed in that import gets its row too.
    """
    from experiments import optimizers

    if study.workload.program is not None or study.optimizer not in optimizers.names():
        return None
    return optimizers.get(study.optimizer).effective_learning_rate(trial.metaparameters)


def layout_columns(layout: Layout) -> dict[str, Any]:
    """A layout as JSON text, without unset values."""
    columns = {key: value for key, value in asdict(layout).items() if value is not None}
    nested = {name: dict(columns.pop(name)) for name in ("dimensions", "pipeline")}
    return {**columns, **{name: values for name, values in nested.items() if values}}


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the installed packages that decide a trial's numbers."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def git_commit(folder: str | None) -> str | None:
    """The commit of the user's folder; ``None`` if it is not a git checkout."""
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
    """``cpu``, or the name of the GPU."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)
