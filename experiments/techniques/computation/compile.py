"""Compiled models: ``torch.compile``."""

from __future__ import annotations

import weakref
from typing import Any, Literal

import torch
from torch import Tensor, nn
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

    def check(self, workload: Any, model: nn.Module, batch: Batch) -> None:
        before = _random_states()
        workload.forward(model, batch)
        if any(not a.equal(b) for a, b in zip(before, _random_states(), strict=True)):
            raise self._refusal()

    def _refusal(self) -> ExperimentError:
        return ExperimentError(
            f"technique {self.label} cannot be used with dropout: its random numbers follow "
            "the examples, and those of compiled code do not",
            hint="a model without dropout, or leave it out",
        )

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        if not torch.is_grad_enabled():
            return compute(model, batch)
        if _get_current_function_mode() is not None:
            raise self._refusal()
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


def _random_states() -> list[Tensor]:
    """Of the generators of all devices in use."""
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpus]
