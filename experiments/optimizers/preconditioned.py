"""Gradients preconditioned by second moments for both sides of a matrix, in pytorch-optimizer's
form: Shampoo and SOAP.

Shampoo (Gupta et al. 2018, arXiv:1802.09568) moves a matrix by L^(-1/4) G R^(-1/4), where L and R
are sums of G Gᵀ and Gᵀ G; a vector has one side and the power -1/2. SOAP (Vyas et al. 2024,
arXiv:2409.11321) runs Adam in the eigenbases of the averages of G Gᵀ and Gᵀ G, which are refreshed
every ``precondition_frequency`` steps; vectors have plain Adam. Its first step moves nothing.

Neither has a stacked form. Their time goes into singular values, QR decompositions
and products with square matrices; batched, these took as long on a CPU as one after the other
(models of 115,000 parameters, 16 of them: QR 93 ms to 91, SVD 14 to 11, outer products 2.1 to 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.optimizers.base import LibraryOptimizer
from experiments.search.space import Value


class Shampoo(LibraryOptimizer):
    """Gradients times inverse roots of their second moments along each dimension.

    The learning rate alone is tuned; every step computes the roots anew. The library's momentum is
    left out: it blends a gradient with the step before, which does not scale as gradients do.
    """

    name = "shampoo"
    library_class = "Shampoo"
    stacks = False
    amplifies_rounding = True
    defaults: Mapping[str, Value] = {"learning_rate": 1e-3, "weight_decay": 0.0, "matrix_eps": 1e-6}
    space: Mapping[str, Any] = {"learning_rate": {"log": [1e-3, 10]}}


class SOAP(LibraryOptimizer):
    """Adam in the eigenbasis of Shampoo's second moments. Its search space is AdamW's."""

    name = "soap"
    decoupled_decay = True
    library_class = "SOAP"
    stacks = False
    amplifies_rounding = True
    defaults: Mapping[str, Value] = {
        "learning_rate": 3e-3,
        "beta1": 0.95,
        "beta2": 0.95,
        "epsilon": 1e-8,
        "weight_decay": 1e-2,
        "precondition_frequency": 10,
    }
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-4, 1]},
        "weight_decay": {"log": [1e-4, 1]},
    }
