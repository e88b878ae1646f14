"""A student network that learns a fixed random teacher network from endless noisy examples.

The teacher-student problem of the theory of learning (Saad & Solla 1995,
doi:10.1103/PhysRevE.52.4225), trained online: an example is never drawn twice, so that a curve is
measured without repetition and without a generalization gap. An example is ``(x, y, t)`` with
``y = t(x) + noise · ε``, where the ε of all examples are independent with mean 0 and variance 1:
the least expected squared error is ``noise²``, and a student that is at least as wide as the
teacher can reach it.

**The same bits everywhere.** Inputs and the teacher's weights are multiples of powers of two, small
enough that all sums of the teacher's forward pass are exact in float64. What an example is then
depends on no order of summation: not on the other examples computed with it, nor on the device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import Dataset

from workloads.base import Batch, Workload
from workloads.generated.counters import fields_of, key_of, random_bits
from workloads.generated.split import GeneratedSplit
from workloads.layout_plan import LayoutPlan

PACKAGED = {
    "teacher": ("Teacher", "MLP that learns a random teacher from endless data; optimum known")
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 21
VALIDATION = 4096
"""Examples of the validation split."""
_SAMPLE = 2**14
"""Examples on which the teacher's outputs are given mean 0 and variance 1."""
_INPUT_UNIT = 2.0**-12
_WEIGHT_UNIT = 2.0**-10
_LEVELS = 2**16


class Teacher(Workload):
    """An MLP with one hidden layer of ``width`` units learns a teacher of the same form."""

    target = "validation_excess_loss < 0.02"
    dataset = "teacher"
    model_name = "mlp"
    version = "1"
    inputs: Annotated[int, Field(ge=1, le=1024)] = 16
    teacher_width: Annotated[int, Field(ge=1, le=256)] = 8
    noise: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Standard deviation of the label noise; the teacher's own outputs have 1."""
    width: Annotated[int, Field(ge=1)] = 64
    """Hidden units of the student."""
    teacher_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Which teacher."""

    @property
    def irreducible_loss(self) -> float:
        """The least expected squared error of any model, noise²: that of the teacher itself."""
        return float(self.noise) ** 2

    def data(self) -> Mapping[str, Batch | Dataset[Any]]:
        """Endless training examples and a fixed sample for validation, 4,096 examples.

        x float32 (N, inputs), y float32 (N,) with noise, t float32 (N,) without.
        """
        given = (self.inputs, self.teacher_width, float(self.noise), self.teacher_seed)
        return {
            "train": TeacherData(*given, stream="train"),
            "validation": TeacherData(*given, stream="validation").examples(
                torch.arange(VALIDATION)
            ),
        }

    def layout_plan(self) -> LayoutPlan:
        """The hidden layer by its units."""
        return LayoutPlan(columns={"0": 1}, rows=("2",), multiples={"width": self.width})

    def model(self) -> nn.Module:
        """A new student with torch's own initialization."""
        return nn.Sequential(
            nn.Linear(self.inputs, self.width), nn.ReLU(), nn.Linear(self.width, 1)
        )

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The student's outputs, shape (B,)."""
        outputs: Tensor = model(batch[0]).squeeze(-1)
        return outputs

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Squared error on the noisy labels, shape (B,)."""
        return (output - batch[1]) ** 2

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``excess_loss``: the expected squared error beyond the irreducible one; its least value
        is 0. ``squared_error``: the expected squared error on noisy labels. Both (B,)."""
        excess = (output - batch[2]) ** 2
        return {"excess_loss": excess, "squared_error": excess + self.irreducible_loss}


class TeacherData(GeneratedSplit):
    """Inputs, noisy labels and the teacher's outputs.

    x: independent, uniform on ±√3 (mean 0, variance 1), rounded to multiples of 2^-12. ε: the sum
    of four uniform numbers, scaled to variance 1: nearly normal, and bounded by 2√3.
    """

    def __init__(self, inputs: int, width: int, noise: float, seed: int, *, stream: str) -> None:
        self.inputs, self.noise = inputs, noise
        self._teacher = (inputs, width, seed)
        self._key = key_of("teacher", seed, stream)

    def examples(self, indices: Tensor) -> Batch:
        """x ``(N, inputs)``, y ``(N,)``, t ``(N,)``, float32."""
        draws = -(-self.inputs // 4)
        levels = fields_of(random_bits(self._key, indices, draws + 1), 16)
        x = _centered(levels[:, : self.inputs]) * (math.sqrt(12) / _LEVELS)
        x = (x / _INPUT_UNIT).round() * _INPUT_UNIT
        outputs = _outputs(x, *(part.to(x.device) for part in teacher(*self._teacher)))
        epsilon = _centered(levels[:, 4 * draws :]).sum(1) * math.sqrt(3 / (_LEVELS**2 - 1))
        return x.float(), (outputs + self.noise * epsilon).float(), outputs.float()


@functools.lru_cache(maxsize=16)
def teacher(inputs: int, width: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The weights of a teacher: hidden (width, inputs), (width,), output (width,), ().

    float64, multiples of 2^-10. Over the inputs its outputs have mean 0 and variance 1 to about a
    percent.
    """
    draw = np.random.RandomState(seed)  # numpy's frozen generator
    hidden = torch.from_numpy(draw.uniform(-1, 1, (width, inputs))) * math.sqrt(3 / inputs)
    offsets = torch.from_numpy(draw.uniform(-1, 1, width))
    output = torch.from_numpy(draw.uniform(0.5, 1.5, width) * draw.choice([-1.0, 1.0], width))
    hidden, offsets = _rounded(hidden), _rounded(offsets)
    bits = random_bits(key_of("teacher", seed, "scale"), torch.arange(_SAMPLE), -(-inputs // 4))
    x = _centered(fields_of(bits, 16)[:, :inputs]) * (math.sqrt(12) / _LEVELS)
    sample = _outputs(x, hidden, offsets, output, output.new_zeros(()))
    deviation = sample.std() if float(sample.std()) > 0 else output.new_ones(())
    return hidden, offsets, _rounded(output / deviation), _rounded(-sample.mean() / deviation)


def _outputs(x: Tensor, hidden: Tensor, offsets: Tensor, output: Tensor, bias: Tensor) -> Tensor:
    """The teacher's outputs, (N,), float64."""
    return (x @ hidden.T + offsets).relu() @ output + bias


def _centered(levels: Tensor) -> Tensor:
    """Numbers from 0 to 2^16 - 1 as float64 around 0."""
    return levels.double() - (_LEVELS - 1) / 2


def _rounded(weights: Tensor) -> Tensor:
    return (weights / _WEIGHT_UNIT).round() * _WEIGHT_UNIT
