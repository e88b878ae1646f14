"""What every engine needs to train a study here: workload, splits, device, layout.

Workloads and their data are loaded once a process and shared by all packs that it trains.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import nn

import workloads
from experiments import optimizers, schedules
from experiments.errors import ExperimentError, nearest
from experiments.plan import Study, Trial, Value
from experiments.seeds import derive
from experiments.techniques import Techniques
from experiments.techniques import load as load_techniques
from experiments.training.memory import saved_bytes
from experiments.training.ranks import SOLO, Ranks, share
from experiments.training.splits import Split
from workloads import Batch, Workload
from workloads.checks import check_splits
from workloads.ghost import convert_batch_norm, has_batch_norm

_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
_SAMPLE = 1024
"""Examples of a streamed split that a probe reads."""
_CHUNK_BYTES = 512 * 2**20
"""Most bytes of activations of one micro-batch, when the study names no micro-batch."""


@lru_cache(maxsize=8)
def _load(
    spec: str, fields: str, base: str | None, identity: str, device: str, dtype: torch.dtype
) -> tuple[Workload, dict[str, Split]]:
    del identity  # part of the key: an edited file is loaded again
    workload = workloads.load(spec, json.loads(fields), base)
    data = workload.data()
    check_splits(data, workload)
    where = torch.device(device)
    return workload, {name: Split(d, workload, where, dtype) for name, d in data.items()}


@dataclass(frozen=True, kw_only=True)
class StudyContext:
    """One study on one worker."""

    study: Study
    workload: Workload
    splits: Mapping[str, Split]
    device: torch.device
    dtype: torch.dtype
    group: Ranks
    optimizer: optimizers.Optimizer
    schedule: schedules.Schedule
    techniques: Techniques

    @classmethod
    def load(cls, study: Study, device: str = "cpu", group: Ranks = SOLO) -> StudyContext:
        """Load what ``study`` names.

        Raises:
            ExperimentError: an unknown precision, optimizer or schedule; a split that is absent.
            WorkloadError: the workload cannot be loaded, or breaks its contract.
        """
        precision = str(study.technique.get("precision", "float32"))
        if precision not in _DTYPES:
            raise ExperimentError(
                f"unknown precision {precision!r}", hint=nearest(precision, _DTYPES)
            )
        ref = study.workload
        identity = workloads.identity(workloads.load(ref.spec, ref.fields, ref.base))
        workload, splits = _load(
            ref.spec,
            json.dumps(dict(ref.fields), sort_keys=True),
            ref.base,
            json.dumps(identity, sort_keys=True),
            device,
            _DTYPES[precision],
        )
        setup = cls(
            study=study,
            workload=workload,
            splits=splits,
            device=torch.device(device),
            dtype=_DTYPES[precision],
            group=group,
            optimizer=optimizers.get(study.optimizer, ref.base),
            schedule=schedules.get(study.schedule, ref.base),
            techniques=load_techniques(study.technique, ref.base),
        )
        for name in setup.evaluated:
            if name not in splits:
                raise ExperimentError(
                    f"target {study.targets[-1]}: {workload.name} has no split {name!r}",
                    hint=nearest(name, splits),
                )
        return setup

    @property
    def train(self) -> Split:
        """The training split."""
        return self.splits["train"]

    def sampled(self, *splits: str) -> StudyContext:
        """The same with few examples of these splits, where they are streamed: for probes."""
        streamed = {name for name in splits if not self.splits[name].resident}
        few = {name: self.splits[name].head(_SAMPLE) for name in streamed}
        return replace(self, splits={**self.splits, **few})

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Splits measured at each look: the validation split, and those the targets name."""
        named = {t.metric.split("_", 1)[0] for t in self.study.targets}
        return tuple(sorted(named | ({"validation"} & set(self.splits))))

    @property
    def ghost_batch(self) -> int | None:
        """Examples a ghost batch of batch norm, as the study has it."""
        value = self.study.technique.get("ghost_batch")
        return int(value) if value is not None else None

    @property
    def part(self) -> slice:
        """This worker's part of the global batch."""
        size = self.study.batch_size
        return share(size, self.group.rank, self.group.size, self.ghost_batch or 1)

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
            torch.manual_seed(derive(trial.seed, "init"))
            model = self.techniques_of(trial).model(self.workload_of(trial).model())
        if has_batch_norm(model):
            ghost = self.ghost_batch or 32
            if self.study.batch_size % ghost:
                raise ExperimentError(
                    f"batch size {self.study.batch_size} is not a multiple of the ghost batch "
                    f"{ghost} of the model's batch norm",
                    hint="set ghost_batch to a divisor, or leave that batch size out",
                )
            model = convert_batch_norm(model, ghost)
        return model.to(device=self.device, dtype=self.dtype)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The precision of the forward pass."""
        if self.study.technique.get("precision") == "bfloat16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def few(self) -> Batch:
        """A training batch that is large enough for one forward, to try a model on."""
        count = min(self.study.batch_size, self.ghost_batch or 32)
        return self.train.fetch(torch.arange(count), training=True)

    def chunk(self, model: nn.Module, models: int) -> int:
        """Examples of one model that one forward may hold, ``models`` models at a time.

        The number does not depend on how many models are in the pack at hand, so that a trial's
        bits do not either.
        """
        unit = self.ghost_batch or (32 if has_batch_norm(model) else 1)
        held = saved_bytes(self.workload, model, self.few())
        chosen = _CHUNK_BYTES // (models * held)
        return max(unit, chosen // unit * unit)

    def micro_batch(self, model: nn.Module, models: int) -> int:
        """Examples of one model in one training forward: as the study says, else ``chunk``."""
        return self.study.layout.micro_batch or self.chunk(model, models)
