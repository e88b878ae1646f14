"""The noisy quadratic model as a workload to be trained; its exact answer is in ``validation.nqm``.

**Where the noise comes from.** The theory wants every gradient over B examples to be the exact one
plus noise of covariance c/B, independent from step to step. Noise that belonged to the examples of
a finite training set would not do: batches drawn without replacement have c/B·(N-B)/(N-1), none at
all at B = N, and their noise cancels over an epoch, which the slow coordinates see. So an example
here is blank, and ``augment`` gives it fresh noise each time it is drawn: the order of the data and
the size of the training set play no part, and the mean over B examples has covariance c/B exactly.

**What the noise of an example is.** The expected loss of this linear system depends on the noise's
mean and covariance alone. An example therefore pushes one coordinate of D, chosen uniformly, by
±√(D·c_i): mean 0, covariance diag(c), at a cost of O(1) an example instead of O(D).

**What is measured.** The goal is on the *expected* loss, which one path of θ estimates badly (its
loss scatters by 20 %). A model holds ``replicas`` independent paths, and the metric is their mean.
Coordinates of one eigenvalue are one coordinate that counts as often as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from workloads.base import Batch, Workload

PACKAGED = {"quadratic": ("Quadratic", "the noisy quadratic model, with an exact answer")}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 20


def spectrum(dimensions: int = 10_000) -> tuple[Tensor, Tensor]:
    """Distinct eigenvalues and how many coordinates have each, (K,) each, float64.

    1/i for i = 1 … ``dimensions``, each at the largest of 100 log-spaced nodes not above it.
    """
    nodes = np.logspace(-4, 0, 100)
    # A node and an eigenvalue that are equal but for rounding are equal.
    harmonic = 1.0 / np.arange(1, dimensions + 1)
    node = np.searchsorted(nodes * (1 - 1e-12), harmonic, side="right") - 1
    counts = np.bincount(node.clip(min=0), minlength=len(nodes))
    return torch.from_numpy(nodes[counts > 0]), torch.from_numpy(counts[counts > 0])


class _Point(nn.Module):
    """Parameters φ and constants of the problem: (replicas, K) coordinates, flattened."""

    eigenvalues: Tensor
    counts: Tensor
    scale: Tensor

    def __init__(self, replicas: int, preconditioner: float) -> None:
        super().__init__()
        h, counts = (part.float() for part in spectrum())
        self.register_buffer("eigenvalues", h.repeat(replicas), persistent=False)
        self.register_buffer("counts", counts.repeat(replicas) / replicas, persistent=False)
        # Gradient descent on φ with θ = h^(-p/2) φ moves θ by α h^-p times its gradient.
        scale = self.eigenvalues ** (-preconditioner / 2)
        self.register_buffer("scale", scale, persistent=False)
        self.phi = nn.Parameter(torch.randn(len(scale)) / scale)

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """θ, the eigenvalues and their counts (a share of each replica), each of shape (D,)."""
        return self.phi * self.scale, self.eigenvalues, self.counts


class Quadratic(Workload):
    """½ Σ h_i θ_i² with h_i = 1/i, i = 1 … 10⁴, and gradient noise of covariance h_i/B."""

    target = "validation_loss < 0.01"
    dataset = "none"
    model_name = "quadratic"
    version = "1"
    examples: Annotated[int, Field(ge=1)] = 2**20
    """Blank training examples: what an epoch and a full batch are."""
    replicas: Annotated[int, Field(ge=1)] = 64
    preconditioner: float = 0.0
    """The power p of a preconditioner diag(h^p): α h^-p takes the place of α."""

    def data(self) -> Mapping[str, Batch]:
        """Blanks: one uint8 tensor (N, 1) a split."""
        return {
            "train": (torch.zeros(self.examples, 1, dtype=torch.uint8),),
            "validation": (torch.zeros(1, 1, dtype=torch.uint8),),
        }

    def model(self) -> nn.Module:
        """θ(0) ~ N(0, I)."""
        return _Point(self.replicas, self.preconditioner)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Give each example its noise: a position in [0, 1) among the coordinates, and a sign."""
        blank = batch[0]
        drawn = torch.rand(len(blank), 2, generator=generator, device=generator.device)
        return blank, drawn.to(blank.device)

    def forward(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002
        """θ, eigenvalues and counts: the same for all examples."""
        point: tuple[Tensor, Tensor, Tensor] = model()
        return point

    def loss(self, output: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
        """½ Σ h θ² over every coordinate of every replica, and each example's noise times θ.

        Without noise (a batch that was not augmented) it is the same for all examples.
        """
        theta, h, _ = output
        exact = (0.5 * h * theta * theta).sum().expand(len(batch[0]))
        if len(batch) == 1:
            return exact
        chosen = (batch[1][:, 0] * len(theta)).long().clamp(max=len(theta) - 1)
        size = (len(theta) * h[chosen]).sqrt()  # c = h
        return exact + torch.where(batch[1][:, 1] < 0.5, size, -size) * theta[chosen]

    def metrics(self, output: tuple[Tensor, Tensor, Tensor], batch: Batch) -> dict[str, Tensor]:
        """``loss``: ½ Σ h θ² over the 10⁴ coordinates, the mean of the replicas, shape (B,)."""
        theta, h, counts = output
        return {"loss": (0.5 * counts * h * theta * theta).sum().expand(len(batch[0]))}
