"""The context in which an engine trains a study: workload, splits, device, layout."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

import workloads
from experiments import optimizers, parallel, schedules
from experiments.errors import ExperimentError, nearest
from experiments.factors.ramp import ramped
from experiments.identity import technique_identity
from experiments.parallel import SOLO, ParallelLayout, Ranks
from experiments.plan import Study, Trial
from experiments.precision import Precision
from experiments.search.space import Value
from experiments.seeds import derive, seed_torch
from experiments.techniques import Techniques
from experiments.techniques import load as load_techniques
from experiments.training.splits import Order, Split, load_splits
from workloads import Batch, Workload
from workloads.checks import check_model
from workloads.ghost import GHOST_BATCH, convert_batch_norm, has_batch_norm

_STUDIES = 8
"""Studies whose techniques stay loaded on a worker."""
_loaded: OrderedDict[Any, Techniques] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class StudyContext:
    """One study on one worker."""

    study: Study
    workload: Workload
    splits: Mapping[str, Split]
    device: torch.device
    dtype: torch.dtype
    precision: Precision
    layout: ParallelLayout
    optimizer: optimizers.Optimizer
    schedule: schedules.Schedule
    techniques: Techniques

    @classmethod
    def load(cls, study: Study, device: str = "cpu", ranks: Ranks = SOLO) -> StudyContext:
        """Load what ``study`` names.

        Raises:
            ExperimentError: an unknown precision, optimizer, schedule or layout; an absent split.
            WorkloadError: the workload cannot be loaded, or breaks its contract.
        """
        precision, ref = Precision.of(study.technique, device), study.workload
        workload, splits = load_splits(ref, device, precision.dtype)
        context = cls(
            study=study,
            workload=workload,
            splits=splits,
            device=torch.device(device),
            dtype=precision.dtype,
            precision=precision,
            layout=parallel.of(study.layout, ref.base).join(ranks),
            optimizer=optimizers.get(study.optimizer, ref.base),
            schedule=ramped(schedules.get(study.schedule, ref.base), study.ramp),
            techniques=load_techniques(study.technique, ref.base).with_budget(
                study.technique_steps
            ),
        )
        for name in context.evaluated:
            if name not in splits:
                raise ExperimentError(
                    f"target {study.targets[-1]}: {workload.name} has no split {name!r}",
                    hint=nearest(name, splits),
                )
        return replace(context, techniques=_prepared(context))

    @functools.cached_property
    def identity(self) -> tuple[str, ...]:
        """The workload, and the techniques with the files that they read: what has the same
        computes the same of equal settings."""
        technique = technique_identity(self.study.technique, self.study.workload.base)
        parts = workloads.identity(self.workload), technique
        return tuple(json.dumps(part, sort_keys=True) for part in parts)

    @property
    def train(self) -> Split:
        """The training split, with the rows that techniques have for its examples."""
        return self.splits["train"].beside(self.techniques.example_tensors)

    @property
    def fixed_examples(self) -> bool:
        """Whether the training split's examples are trained on as they are stored."""
        train, changed = self.splits["train"], self.techniques.define("augment", "batch")
        return train.resident and not train.random and not changed

    def order(self, trial: Trial) -> Order:
        """The order in which the trial sees the training split, from its own stream."""
        study = self.study
        return self.train.order(
            trial.seed,
            study.ramp or study.batch_size,
            repeat=study.repeat_data,
            branch=trial.branch,
        )

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Splits measured at each evaluation: the validation split, and those the targets name."""
        named = {t.metric.split("_", 1)[0] for t in self.study.targets}
        return tuple(sorted(named | ({"validation"} & set(self.splits))))

    @property
    def ghost_batch(self) -> int | None:
        """Examples a ghost batch of batch norm, as the study has it."""
        value = self.study.technique.get("ghost_batch")
        return int(value) if value is not None else None

    def part(self, step: int) -> slice:
        """This worker's part of the global batch of a step."""
        return self.layout.share(self.study.batches.size(step), self.ghost_batch or 1)

    def tuned_fields(self, trial: Trial) -> dict[str, Value]:
        """The trial's metaparameters that are fields of the workload (label smoothing, say)."""
        return {k: v for k, v in trial.metaparameters.items() if k in self.workload.fields}

    def workload_of(self, trial: Trial) -> Workload:
        """The workload as this trial has it."""
        tuned = self.tuned_fields(trial)
        if not tuned:
            return self.workload
        ref = self.study.workload
        return workloads.load(ref.spec, {**ref.fields, **tuned}, ref.base)

    def techniques_of(self, trial: Trial) -> Techniques:
        """The techniques as this trial has them."""
        return self.techniques.of_trial(trial.metaparameters)

    def model(self, trial: Trial) -> nn.Module:
        """The trial's freshly initialized model, from its own stream."""
        with torch.random.fork_rng(devices=[]):
            seed_torch(derive(trial.seed, "init"), self.device)
            workload = self.workload_of(trial)
            model = self.techniques_of(trial).model(check_model(workload.model(), workload))
        if has_batch_norm(model):
            ghost = self.ghost_batch or GHOST_BATCH
            for size in self.study.batches.sizes:
                if size % ghost:
                    raise ExperimentError(
                        f"batch size {size} is not a multiple of the ghost batch {ghost}",
                        hint="set ghost_batch to a divisor, or leave that batch size out",
                    )
            model = convert_batch_norm(model, ghost)
        return model.to(device=self.device, dtype=self.dtype)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The precision of the forward pass."""
        return self.precision.autocast()

    def small_batch(self) -> Batch:
        """A training batch that is large enough for one forward, to try a model on."""
        most = self.study.layout.micro_batch or self.study.batch_size
        count = min(self.study.batch_size, self.ghost_batch or min(32, most))
        return self.splits["train"].fetch(torch.arange(count), training=True)


def _prepared(context: StudyContext) -> Techniques:
    """The techniques with what they have loaded: for all packs of a study the same objects."""
    if not context.techniques.define("prepare"):
        return context.techniques
    # By identity, so that an edited file is read again.
    key = (repr(context.study), context.identity, context.device)
    if key not in _loaded:
        _loaded[key] = context.techniques.prepare(context)
        while len(_loaded) > _STUDIES:
            _loaded.popitem(last=False)
    _loaded.move_to_end(key)
    return _loaded[key]
