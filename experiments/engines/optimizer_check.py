"""Whether an optimizer can update a stack of models, apart from whether the models can be
stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experiments.engines.stack import Stack, width_of
from experiments.engines.updates import make_update
from experiments.optimizers.trial_run import GRADIENTS, OptimizerRun, is_users
from experiments.plan import Trial
from experiments.training.study_context import StudyContext


def unstackable_optimizer(context: StudyContext, trials: Sequence[Trial]) -> str | None:
    """Why the optimizer cannot update a stack of models; ``None`` if it can.

    Two models take two steps in a stack, whose rows change their places in between, and alone. What
    the optimizer raises alone is its own error, and passes unchanged.
    """
    values = context.optimizer.arguments_in(trials[0].metaparameters)
    if context.optimizer.hessian_period(values) is not None:
        return "it needs Hessian-vector products, which a stack of models does not compute"
    if not is_users(context.optimizer):
        return None
    pack = [trials[0], trials[-1]]
    models = [context.model(trial) for trial in pack]
    stack = Stack.of(models, width_of(len(pack)))
    alone = [_alone(context, trial, model) for trial, model in zip(pack, models, strict=True)]
    try:
        _step_twice(context, pack, stack)
    # What a user's optimizer does to views of a stack can fail in any way; the reason is reported.
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    for row, alone_run in enumerate(reversed(alone)):
        if alone_run.differs({name: view[row] for name, view in stack.views.items()}):
            return (
                "its steps differ from those of a single model (parameters change their place "
                "in memory)"
            )
    return None


def _alone(context: StudyContext, trial: Trial, model: torch.nn.Module) -> OptimizerRun:
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    values = context.optimizer.arguments_in(trial.metaparameters)
    alone_run = OptimizerRun(context.optimizer, values, trained, context.workload)
    for _ in range(2):
        alone_run.step()
    return alone_run


def _step_twice(context: StudyContext, pack: Sequence[Trial], stack: Stack) -> None:
    """Afterwards the rows of the stack are in reverse order."""
    update = make_update(context, pack, stack)
    start = stack.weights.clone()
    learning_rates = [[float(t.metaparameters.get("learning_rate", 1.0))] for t in pack]
    rates = torch.tensor(learning_rates, dtype=torch.float64, device=context.device)
    reverse = torch.tensor([1, 0], device=context.device)
    for multiple in GRADIENTS[:2]:
        stack.gradient.copy_(start * multiple)
        update.step(rates)
        if multiple == GRADIENTS[0]:
            stack.keep(reverse)
            update.keep(reverse)
            start, rates = start[reverse], rates[reverse]
