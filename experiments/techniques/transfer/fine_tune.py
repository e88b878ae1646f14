"""Fine-tuning: training that begins with the weights of a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import AfterValidator
from torch import nn

from experiments.techniques.base import Preparation, Technique
from experiments.techniques.transfer.weights_file import (
    WeightsFile,
    load_weights,
    packaged_weights,
    read_weights,
    refuse_pickled,
)


def _safetensors(path: str) -> str:
    refuse_pickled(path)
    return path


WeightsPath = Annotated[str, AfterValidator(_safetensors)]


class FineTune(Technique):
    """Begin with the ``weights`` of a safetensors file: a trial's, or torchvision's converted."""

    name = "fine_tune"
    example = "weights.safetensors"
    order = 100

    weights: WeightsPath
    """The file, relative to the experiment file; or the name of packaged weights."""
    head: Literal["new"] | None = None
    """``new``: parameters with another number of outputs than the file's begin as without it."""
    partial: bool = False
    """Whether names that only the file or only the model has are left out, with a warning."""

    _content: ClassVar[WeightsFile]
    _dtype: ClassVar[torch.dtype]

    def data_files(self) -> tuple[str, ...]:
        return (self.weights,)

    def located(self, path: str, base: str | None) -> Path:
        return packaged_weights().get(path) or super().located(path, base)

    def prepare(self, context: Preparation) -> Technique:
        file = self.local_file(self.weights, context)
        content = read_weights(file, f"technique {self.label}")
        loaded = self.with_arguments({"_content": content, "_dtype": context.dtype})
        with torch.random.fork_rng(devices=[]):
            left_out = loaded._load(context.workload.model())
        if left_out and self.partial:
            warnings.warn(
                f"technique {self.label}: {', '.join(left_out)} did not match {self.weights}, and "
                "begin as without it",
                stacklevel=2,
            )
        return loaded

    def model(self, model: nn.Module) -> nn.Module:
        self._load(model.to(self._dtype))
        return model

    def _load(self, model: nn.Module) -> list[str]:
        return load_weights(
            model,
            self._content.tensors,
            f"technique {self.label}: {self.weights}",
            partial=self.partial,
            new_head=self.head == "new",
        )
