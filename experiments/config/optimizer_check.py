"""What a user's optimizers say of the workload's model, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from experiments.config.combinations import Combination
from experiments.errors import ExperimentError
from experiments.optimizers.own import OwnOptimizer

if TYPE_CHECKING:
    from experiments.config.file import Experiment


def check_optimizers(experiment: Experiment, combinations: Sequence[Combination]) -> None:
    """Each optimizer that is no registered one must take the parameters of the workload's model.

    It is made once, over a new model, with metaparameters from the middle of its space.

    Raises:
        ExperimentError: it lacks an argument, or does not take some of the parameters. What a
            user's own constructor raises passes unchanged.
    """
    seen: set[str] = set()
    for combination in combinations:
        optimizer = combination.optimizer
        if not isinstance(optimizer, OwnOptimizer) or optimizer.name in seen:
            continue
        seen.add(optimizer.name)
        middle = {name: space.value(0.5) for name, space in combination.space.items()}
        given = optimizer.own({**combination.fixed, **middle})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = combination.workload.model()
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        try:
            optimizer.module(trained, given)
        except ExperimentError as error:
            raise experiment.error(
                ("grid", "optimizer", _place(experiment, optimizer.name)), str(error), error.hint
            ) from None


def _place(experiment: Experiment, name: str) -> int:
    names = experiment.grid.get("optimizer")
    return list(names).index(name) if isinstance(names, (list, tuple)) else 0
