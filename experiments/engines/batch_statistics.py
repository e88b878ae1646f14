"""Running statistics of batch norm for averaged weights, which no step of training has taken."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from experiments.errors import ExperimentError
from experiments.optimizers.base import averages
from experiments.parallel import ParallelLayout
from experiments.techniques import Techniques
from experiments.training.study_context import StudyContext
from workloads import Batch
from workloads.ghost import GHOST_BATCH, GhostBatchNorm, finish_step

_EXAMPLES = 2048
"""Training examples of which they are taken."""


def takes_statistics(
    optimizer: torch.optim.Optimizer, techniques: Techniques, layout: ParallelLayout
) -> bool:
    """Whether evaluations measure averages of the trained weights.

    Raises:
        ExperimentError: they do, in a pipeline.
    """
    of_technique = any(p.defines("evaluated") and not p.follows_average for p in techniques)
    if not (averages(optimizer) or of_technique):
        return False
    if layout.staged:
        raise ExperimentError(
            "averaged weights need batch norm's statistics of their own, which a pipeline does "
            "not take",
            hint="leave pipeline out of the layout, or choose a model with another norm",
        )
    return True


def take_statistics(
    model: nn.Module, context: StudyContext, micro_batch: int, forward: Callable[[Batch], object]
) -> None:
    """Take them anew (Izmailov et al. 2018, section 3.2), of the same training examples in each
    layout: neither those of the trained weights nor an average of them are right."""
    train, ghost = context.splits["train"], context.ghost_batch or GHOST_BATCH
    # A stream is read from its beginning, and may end with the budget.
    size = context.study.batch_size * context.study.budget_steps if train.iterable else len(train)
    number = min(_EXAMPLES, size) // ghost * ghost
    indices = torch.arange(number)
    if not train.iterable:
        indices = torch.randint(size, (number,), generator=torch.Generator().manual_seed(0))
    normed = [module for module in model.eval().modules() if isinstance(module, GhostBatchNorm)]
    for module in normed:
        module.takes_statistics = True
    with torch.random.fork_rng(devices=[]), context.autocast():
        torch.default_generator.manual_seed(0)  # a Dataset may draw
        for part in reversed(indices.split(micro_batch)):  # reads a stream once
            forward(train.fetch(part, training=False))
    for module in normed:
        module.takes_statistics = False
    finish_step(model, momentum=1.0)
    model.train()
