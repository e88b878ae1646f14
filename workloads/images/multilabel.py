"""Classification with any number of labels an example, measured by its average precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.base import Batch, Workload
from workloads.fc import perceptron, perceptron_plan
from workloads.layout_plan import LayoutPlan

PACKAGED = {"multilabel-mlp": ("MultiLabelMLP", "MLP on generated examples of several labels each")}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 9


class MultiLabel(Workload):
    """Batches are (x, y): y has a 1 for each label of an example and a 0 for each other, (B, K);
    outputs are logits of shape (B, K).

    The loss is the binary cross entropy, summed over the labels. Metrics: ``cross_entropy``, and of
    a whole split ``average_precision``, over all pairs of an example and a label ("micro"), and
    ``macro_average_precision``, the mean over the labels that any example has.
    """

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Binary cross entropy in nats, summed over the labels, shape (B,)."""
        y = batch[1].to(output.dtype)
        return F.binary_cross_entropy_with_logits(output, y, reduction="none").sum(-1)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``cross_entropy``, shape (B,)."""
        return {"cross_entropy": self.loss(output, batch)}

    def split_metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """The average precisions, sum over n of (R_n - R_{n-1}) P_n (scikit-learn's
        ``average_precision_score``); not a number where no example has a label, or an output is
        none.
        """
        from sklearn.metrics import average_precision_score

        scores, labels = outputs.double().numpy(), targets.numpy()
        present = labels.any(0)
        names = {"average_precision": "micro", "macro_average_precision": "macro"}
        if not present.any() or not torch.isfinite(outputs).all():
            return dict.fromkeys(names, float("nan"))
        return {
            name: float(
                average_precision_score(
                    labels if average == "micro" else labels[:, present],
                    scores if average == "micro" else scores[:, present],
                    average=average,
                )
            )
            for name, average in names.items()
        }


class MultiLabelMLP(MultiLabel):
    """Labels are those where a fixed random linear map of the example, with noise, is high.

    4,096 training and 1,024 validation examples of 32 Gaussian numbers; a label belongs to about
    one example in ten. The same on every machine.
    """

    target = "validation_average_precision > 0.6"
    dataset = "multilabel-generated"
    model_name = "mlp"
    version = "1"
    EXAMPLES: ClassVar[tuple[int, int]] = (4096, 1024)
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (64,)
    labels: Annotated[int, Field(ge=1)] = 16

    def data(self) -> Mapping[str, Batch]:
        """x float32 (N, 32), y uint8 (N, labels)."""
        generator = torch.Generator().manual_seed(0)
        train, validation = self.EXAMPLES
        x = torch.randn(train + validation, 32, generator=generator)
        teacher = torch.randn(32, self.labels, generator=generator) / 32**0.5
        noise = 0.3 * torch.randn(len(x), self.labels, generator=generator)
        y = (x @ teacher + noise > 1.34).to(torch.uint8)
        return {"train": (x[:train], y[:train]), "validation": (x[train:], y[train:])}

    def layout_plan(self) -> LayoutPlan | None:
        """Hidden layers in pairs."""
        return perceptron_plan(self.widths)

    def model(self) -> nn.Module:
        """A new model."""
        return perceptron(32, self.widths, self.labels)
