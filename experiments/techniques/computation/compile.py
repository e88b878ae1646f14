"""Compiled models: ``torch.compile``."""

from __future__ import annotations

import weakref
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import _get_current_function_mode

from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Technique
from workloads import Batch

_compiled: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()


class Compile(Technique):
    """Train the model as ``torch.compile`` compiles it; evaluations are as they are without."""

    name = "compile"
    stacks = False
    why_not_stacked = "a stack of models is traced already"

    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        if not torch.is_grad_enabled():
            return compute(model, batch)
        if _get_current_function_mode() is not None:
            raise ExperimentError(
                f"technique {self.label} cannot be used with dropout: its random numbers follow "
                "the examples, and those of compiled code do not",
                hint="a model without dropout, or leave it out",
            )
        if model not in _compiled:
            _compiled[model] = torch.compile(model, backend=self.backend)
        try:
            return compute(_compiled[model], batch)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise ExperimentError(
                f"technique {self.label}: {self.backend} cannot compile the model here: "
                f"{str(error).splitlines()[0]}",
                hint="inductor needs a C++ compiler on a CPU, and Triton on a GPU",
            ) from error
