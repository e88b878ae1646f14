"""Progressive resizing (Tan & Le 2021, arXiv:2104.00298): small images first."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import nn
from torch.nn import functional as F

from experiments.errors import ExperimentError
from experiments.techniques.base import Technique
from experiments.techniques.data.images import check_images
from workloads import Batch


class Resize(Technique):
    """Begin with images of ``smallest`` of their side, and grow them over ``until`` of the budget.

    In ``phases`` of equal length and linear in the side, the last of which is the full size;
    evaluations are of full images. The model must take images of any size.
    """

    name = "resize"
    stacks = False
    why_not_stacked = "models at different steps see images of different sizes"
    uses_budget = True
    budget_shares = ("until",)

    smallest: Annotated[float, Field(gt=0, lt=1)] = 0.5
    until: Annotated[float, Field(gt=0, le=1)] = 0.5
    phases: Annotated[int, Field(ge=2)] = 4
    """Sizes, the full one included."""

    def side(self, side: int, step: int) -> int:
        """The pixels of a side of so many, after ``step`` updates."""
        assert self.budget_steps is not None
        phase = step * (self.phases - 1) // max(1, round(self.until * self.budget_steps))
        share = min(phase / (self.phases - 1), 1.0)
        return max(1, round(side * (self.smallest + (1 - self.smallest) * share)))

    def check(self, workload: Any, model: nn.Module, batch: Batch) -> None:
        small = self.augment(batch, 0)
        try:
            workload.forward(model, small)
        except (RuntimeError, ValueError) as error:
            raise ExperimentError(
                f"technique {self.label}: the model of workload {workload.name} does not take "
                f"images of {' x '.join(map(str, small[0].shape[-2:]))} pixels: "
                f"{str(error).splitlines()[0]}",
                hint="a model that averages over its last image, such as cifar10-resnet8",
            ) from error

    def augment(self, batch: Batch, step: int) -> Batch:
        x = batch[0]
        check_images(x, self.label)
        size = [self.side(side, step) for side in x.shape[-2:]]
        if size == list(x.shape[-2:]):
            return batch
        smaller = F.interpolate(x, size, mode="bilinear", antialias=True)
        return (smaller, *batch[1:])
