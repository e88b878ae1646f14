"""Weight decay: coupled, in the gradient, or decoupled from it (Loshchilov & Hutter 2019)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.techniques.base import State, Step, Technique, Tensors
from experiments.techniques.patterns import EMBEDDINGS, matrices


class WeightDecay(Technique):
    """Shrink weights in each step by the learning rate times ``rate``, beside the update.

    Norms, biases and embeddings are left alone, unless ``of: all``; ``exclude`` holds patterns of
    the names of further ones. As AdamW has it, the weights before the update shrink, by the
    learning rate of the step. With ``kind: coupled``, ``rate`` times the weights is added to the
    gradient instead, behind clipping, as torch's SGD has it. It adds to the optimizer's own.
    """

    name = "weight_decay"

    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    kind: Literal["decoupled", "coupled"] = "decoupled"
    of: Literal["matrices", "all"] = "matrices"
    exclude: tuple[str, ...] = EMBEDDINGS

    @property
    def order(self) -> int:  # type: ignore[override]
        """Decoupled, it belongs to the update whose weights ``lookahead`` gets."""
        return 850 if self.kind == "coupled" else 440

    def defines(self, hook: str) -> bool:
        return super().defines(hook) and (hook != "after_step" or self.kind == "decoupled")

    def _names(self, weights: Tensors) -> list[str]:
        return list(weights) if self.of == "all" else matrices(weights, self.exclude)

    def start(self, weights: Tensors) -> State:
        """What the next update takes away besides."""
        if self.kind == "coupled":
            return {}
        return {name: weights[name] * 0 for name in self._names(weights)}

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Step) -> Tensors:
        if self.kind == "coupled":
            decayed = {n: gradients[n] + self.rate * weights[n] for n in self._names(gradients)}
            return {**gradients, **decayed}
        for name, taken in state.items():  # a weight without a gradient is not updated
            used = name in gradients
            state[name] = weights[name] * (step.learning_rate * self.rate) if used else taken * 0
        return gradients

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        return {**weights, **{name: weights[name] - taken for name, taken in state.items()}}
