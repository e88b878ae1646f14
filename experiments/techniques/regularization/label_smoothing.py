"""Label smoothing (Szegedy et al. 2016, arXiv:1512.00567) as Shallue et al. 2019 have it."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Technique
from workloads import Batch

_IGNORED = -100
"""The label of what has no loss: ``ignore_index`` of torch's cross entropy."""


class LabelSmoothing(Technique):
    """Train on labels whose right class has the weight 1 - ``epsilon``, and the others the rest.

    Of K classes each wrong one has the weight epsilon / (K - 1). The loss must be the cross entropy
    of classes: logits (B, …, K), labels (B, …), a mean over the dimensions between, as of the
    tokens of a sequence. A label of -100 has no loss, as in torch. Metrics are not smoothed.
    """

    name = "label_smoothing"
    order = 550

    epsilon: Annotated[float, Field(ge=0, lt=1)]

    def check(self, workload: Any, model: nn.Module, batch: Batch) -> None:
        output = workload.forward(model, batch)
        logits, loss = self._logits(output, batch), workload.loss(output, batch)
        each = F.cross_entropy(
            logits.flatten(0, -2), batch[1].flatten().long(), reduction="none"
        ).view(batch[1].shape)
        each = each.flatten(1).mean(1) if each.dim() > 1 else each
        if not torch.allclose(loss, each, rtol=1e-3, atol=1e-5):
            raise ExperimentError(
                f"technique {self.label} needs the plain cross entropy as loss, and that of "
                f"workload {workload.name} is another",
                hint="leave it out; or, where the workload has a field label_smoothing, that at 0",
            )

    def criterion(self, compute: Compute, output: Any, batch: Batch) -> Tensor:
        loss: Tensor = compute(output, batch)
        logits = self._logits(output, batch)
        classes = logits.shape[-1]
        # The sum over all classes of -log p. Of thousands of them it is beyond float16.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        every = torch.logsumexp(logits, -1) * classes - logits.sum(-1)
        every = every.masked_fill(batch[1] == _IGNORED, 0)
        every = every.flatten(1).mean(1) if every.dim() > 1 else every
        return (1 - self.epsilon) * loss + self.epsilon / (classes - 1) * (every - loss)

    def _logits(self, output: Any, batch: Batch) -> Tensor:
        labels = batch[1] if len(batch) > 1 else None
        classes = (
            isinstance(output, Tensor)
            and output.is_floating_point()
            and labels is not None
            and not labels.is_floating_point()
            and output.dim() > 1
            and output.shape[:-1] == labels.shape
            and output.shape[-1] > 1
        )
        if not classes:
            raise ExperimentError(
                f"technique {self.label} needs one class an example (or token) and logits of all "
                "classes, and this workload has others",
                hint="leave it out; the workload's loss decides what a smoothed target is",
            )
        logits: Tensor = output
        return logits
