"""Knowledge distillation (Hinton, Vinyals & Dean 2015, arXiv:1503.02531): a model learns the
outputs of another one, its teacher, beside the labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

import workloads
from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Preparation, Technique
from experiments.techniques.transfer.fine_tune import WeightsPath
from experiments.techniques.transfer.weights_file import (
    load_weights,
    packaged_weights,
    read_weights,
)
from workloads import Batch

_CHUNK = 512
"""Examples of a forward pass of the teacher."""
_MOST_BYTES = 2**28
"""Largest outputs of a teacher that are kept for all training examples."""


class Distill(Technique):
    """Learn the outputs of a ``teacher`` too: the weights of a trial that ``--save`` wrote.

    The loss is (1 - weight) times the workload's and weight · T² times the Kullback-Leibler
    divergence of the two softmax outputs at temperature T, the mean over positions where an example
    has several. The last dimension of an output is that of the classes.
    """

    name = "distill"
    example = "teacher.safetensors"
    order = 450
    needs_whole = "outputs"

    teacher: WeightsPath
    """The file, relative to the experiment file; or the name of packaged weights."""
    workload: str | None = None
    """The teacher's workload, as an experiment file names it; what the file says unless given."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2.0
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5

    _outputs: ClassVar[Any] = None

    def data_files(self) -> tuple[str, ...]:
        source = (self.workload or "").rpartition(":")[0]
        return (self.teacher, source) if source.endswith(".py") else (self.teacher,)

    def located(self, path: str, base: str | None) -> Path:
        return packaged_weights().get(path) or super().located(path, base)

    def prepare(self, context: Preparation) -> Technique:
        outputs = self._outputs_of(context)
        train = context.splits["train"]
        if context.fixed_examples:
            parts = torch.arange(len(train)).split(_CHUNK)
            first = outputs(train.fetch(parts[0], training=True))
            if first.nbytes / len(first) * len(train) <= _MOST_BYTES:
                rest = [outputs(train.fetch(part, training=True)) for part in parts[1:]]
                return self.with_arguments({"example_tensors": (torch.cat([first, *rest]),)})
        return self.with_arguments(
            {
                "_outputs": outputs,
                "stacks": False,
                "why_not_stacked": "its teacher sees each batch anew, since examples change "
                "(or its outputs are too large to be kept)",
            }
        )

    def criterion(self, compute: Compute, output: Any, batch: Batch) -> Tensor:
        taught = self.example_tensors[0] if self.example_tensors else self._outputs(batch)
        if not isinstance(output, Tensor) or output.shape != taught.shape:
            size = " × ".join(map(str, output.shape[1:])) if isinstance(output, Tensor) else "other"
            raise ExperimentError(
                f"technique {self.label}: an output of the model has {size} numbers, and of the "
                f"teacher {' × '.join(map(str, taught.shape[1:]))}",
                hint="a teacher of the same classes",
            )
        student, teacher = (F.log_softmax(x / self.temperature, -1) for x in (output, taught))
        divergence = F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)
        soft = self.temperature**2 * divergence.reshape(len(divergence), -1).mean(1)
        return (1 - self.weight) * compute(output, batch) + self.weight * soft

    def _outputs_of(self, context: Preparation) -> Callable[[Batch], Tensor]:
        """What the teacher says of a batch, without a gradient."""
        owner, base = f"technique {self.label}", context.study.workload.base
        content = read_weights(self.local_file(self.teacher, context), owner)
        workload = workloads.load(*self._workload_of(content.about, owner, base), base)
        with torch.random.fork_rng(devices=[]):
            model = workload.model()
        try:
            load_weights(model, content.tensors, f"{owner}: {self.teacher}")
        except ExperimentError as error:
            hint = f"weights of the whole model of workload {workload.name}, or its fields"
            raise ExperimentError(str(error), hint=hint) from None
        model = model.to(context.device, context.dtype).eval().requires_grad_(False)

        def outputs(batch: Batch) -> Tensor:
            try:
                with torch.no_grad():
                    values = workload.forward(model, batch)
            except (RuntimeError, IndexError, TypeError) as error:
                raise ExperimentError(
                    f"{owner}: the model of workload {workload.name} does not take these examples "
                    f"({str(error).splitlines()[0]})",
                    hint="a teacher that was trained on such examples",
                ) from error
            if not isinstance(values, Tensor) or values.dim() < 2 or values.shape[-1] < 2:
                raise ExperimentError(
                    f"{owner}: the output of workload {workload.name} is not one number a class",
                    hint="a teacher that classifies",
                )
            return values

        return outputs

    def _workload_of(
        self, about: Mapping[str, str], owner: str, base: str | None
    ) -> tuple[str, dict[str, Any]]:
        """The teacher's workload and its fields, which the file says where it is a trial's."""
        saved = about.get("workload")
        fields = json.loads(about.get("fields", "{}"))
        if self.workload is None:
            if saved is None or ".py" in saved:
                raise ExperimentError(
                    f"{owner}: {self.teacher} is of {saved or 'no workload that it names'}",
                    hint="say it: workload: NAME, or file.py:Class",
                )
            return saved, fields
        path, _, name = self.workload.rpartition(":")
        spec = f"{self.located(path, base)}:{name}" if path.endswith(".py") else self.workload
        same = saved is not None and saved.rpartition("/")[2] == self.workload.rpartition("/")[2]
        return spec, fields if same else {}
