"""Whether an optimizer can update a stack of models: asked apart from whether the models stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experiments.engines.step import Stack, width_of
from experiments.engines.updates import make_update
from experiments.optimizers.own import OwnOptimizer
from experiments.plan import Trial
from experiments.training.setup import Setup

_MODELS = 2


def unstackable_optimizer(setup: Setup, trials: Sequence[Trial]) -> str | None:
    """Why the optimizer cannot update a stack of models, ``None``: it can.

    Two models take one step, with their weights as gradients. What the optimizer raises for one
    model alone too is its own error, and passes unchanged.
    """
    optimizer = setup.optimizer
    if not isinstance(optimizer, OwnOptimizer):
        return None
    pack = [trials[0], trials[-1]]
    models = [setup.model(trial) for trial in pack]
    stack = Stack.of(models, width_of(_MODELS))
    stack.gradient.copy_(stack.weights)
    rates = [[float(trial.metaparameters.get("learning_rate", 1.0))] for trial in pack]
    try:
        update = make_update(optimizer, setup.schedule, pack, stack)
        update.step(torch.tensor(rates, dtype=torch.float64, device=setup.device))
    # What a user's optimizer does to views of a stack can fail in any way; the reason is reported.
    except Exception as error:
        _step_alone(setup, pack[0], models[0])
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _step_alone(setup: Setup, trial: Trial, model: torch.nn.Module) -> None:
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    own = setup.optimizer.own(trial.metaparameters)
    optimizer = setup.optimizer.module(trained, own)
    for _, parameter in trained:
        parameter.grad = parameter.detach().clone()
    optimizer.step()
