"""What a user's optimizers say of the workload's model, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from experiments.config.combinations import Combination
from experiments.errors import ExperimentError
from experiments.optimizers.base import Named
from experiments.optimizers.trial_run import OptimizerRun
from experiments.optimizers.user_optimizer import UserOptimizer
from experiments.plan import Value
from workloads import Workload

if TYPE_CHECKING:
    from experiments.config.file import Experiment


def check_optimizers(experiment: Experiment, combinations: Sequence[Combination]) -> None:
    """Each optimizer that is no registered one must take the parameters of the workload's model,
    and go on from its saved state as if it had not been stopped.

    It takes three steps on a new model, with metaparameters from the middle of its space.

    Raises:
        ExperimentError: it lacks an argument, does not take some of the parameters, or loses its
            state. What a user's own code raises passes unchanged.
    """
    seen: set[str] = set()
    for combination in combinations:
        optimizer = combination.optimizer
        if not isinstance(optimizer, UserOptimizer) or optimizer.name in seen:
            continue
        seen.add(optimizer.name)
        middle = {name: space.value(0.5) for name, space in combination.space.items()}
        given = optimizer.arguments_in({**combination.fixed, **middle})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = combination.workload.model()
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        try:
            _check_state(optimizer, given, trained, combination.workload)
        except ExperimentError as error:
            raise experiment.error(
                ("grid", "optimizer", _place(experiment, optimizer.name)), str(error), error.hint
            ) from None


def _check_state(
    optimizer: UserOptimizer, values: Mapping[str, Value], named: list[Named], workload: Workload
) -> None:
    whole = OptimizerRun(optimizer, values, named, workload)
    for _ in range(2):
        whole.step()
    resumed = OptimizerRun(optimizer, values, named, workload)
    resumed.save_and_load(whole)
    for tried in (whole, resumed):
        tried.step()
    if whole.differs(resumed.parameters):
        raise ExperimentError(
            f"optimizer {optimizer.name} does not go on as it would have when its state is saved "
            "and loaded, as that of a trial that is stopped",
            hint="keep it in self.state and in the parameter groups, or define state_dict and "
            "load_state_dict",
        )


def _place(experiment: Experiment, name: str) -> int:
    names = experiment.grid.get("optimizer")
    return list(names).index(name) if isinstance(names, (list, tuple)) else 0
