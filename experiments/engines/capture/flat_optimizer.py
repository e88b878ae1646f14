"""One model's optimizer as a captured step needs it: all its numbers are tensors.

``torch.optim`` keeps momenta, betas and learning rates as numbers of Python's, which a recording
would keep as they were. The fused form of a stack has them as columns; a model by itself is a stack
of one, whose parameters are views of one flat row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.base import gather
from experiments.engines.stack import Stack
from experiments.engines.updates import FusedUpdate, make_update
from experiments.plan import Trial
from experiments.training.study_context import StudyContext


class FlatOptimizer(torch.optim.Optimizer):
    """A ``torch.optim.Optimizer`` whose update is a fused form.

    A parameter without a gradient is one whose gradient is 0, as in a stack; torch's optimizers
    skip it.
    """

    def __init__(
        self, context: StudyContext, trial: Trial, model: nn.Module, stack: Stack, update: Any
    ) -> None:
        self.stack, self.update = stack, update
        named = dict(model.named_parameters())
        self._trained = [named[name] for name in stack.trainable]
        places = zip(stack.names, stack.offsets, strict=False)
        self._gradients: list[Tensor] = []
        for name, start in places:
            parameter = named[name]
            row, gradients = (x[0, start : start + parameter.numel()] for x in _rows(stack))
            # Channels that lie last stay so: the update treats each number alike.
            shape, strides = parameter.shape, parameter.stride()
            weights = row.as_strided(shape, strides)
            weights.copy_(parameter.detach())
            parameter.data = weights
            if name in stack.trainable:
                self._gradients.append(gradients.as_strided(shape, strides))
        super().__init__(self._trained, {"lr": float(trial.metaparameters.get("learning_rate", 1))})
        self._rates = torch.zeros(1, 1, dtype=torch.float64, device=context.device)

    @classmethod
    def of(cls, context: StudyContext, trial: Trial, model: nn.Module) -> FlatOptimizer | None:
        """That of a model; ``None``: the optimizer has no fused form, or one that needs parameters
        as they lie in a stack."""
        if any(not p.is_contiguous() for p in model.parameters()) and not (
            context.optimizer.elementwise and all(_is_dense(p) for p in model.parameters())
        ):
            return None
        if len({p.dtype for p in model.parameters()}) > 1 or context.optimizer.averages:
            return None
        if any(isinstance(module, nn.RNNBase) for module in model.modules()):
            return None  # cuDNN wants their weights in an order of its own
        stack = Stack.of([model], 1)
        update = make_update(context, [trial], stack)
        if not isinstance(update, FusedUpdate):
            return None
        return cls(context, trial, model, stack, update)

    def step(self, closure: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """Update by the gradients in ``.grad``."""
        self.apply(self._rates.fill_(self.param_groups[0]["lr"]))

    @torch.no_grad()
    def apply(self, rates: Tensor) -> None:
        """``step`` with a learning rate of the device, ``(1, 1)`` float64."""
        given = [
            (into, parameter.grad)
            for into, parameter in zip(self._gradients, self._trained, strict=True)
        ]
        for into in [into for into, gradient in given if gradient is None]:
            into.zero_()
        present = [(into, gradient) for into, gradient in given if gradient is not None]
        torch._foreach_copy_([into for into, _ in present], [g for _, g in present])
        self.update.step(rates)

    def state_dict(self) -> dict[str, Any]:
        """The state of the fused form, which is no other optimizer's."""
        return {"flat": self.update.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.update.load(gather(state_dict["flat"]))


def _rows(stack: Stack) -> tuple[Tensor, Tensor]:
    return stack.weights, stack.gradient


def _is_dense(parameter: Tensor) -> bool:
    """Whether its numbers fill their memory without gaps or overlaps."""
    order = sorted(zip(parameter.stride(), parameter.shape, strict=True))
    expected = 1
    for stride, size in order:
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
