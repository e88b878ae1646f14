"""The learning rates of a torch optimizer's parameter groups, as a schedule moves them."""

from __future__ import annotations

import torch

from experiments.errors import ExperimentError


class Rates:
    """Each group's rate as the optimizer was made with it, times a factor of the schedule's.

    Args:
        name: what errors call the optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        self.optimizer, self.name = optimizer, name
        self.base = [group.get("lr") for group in optimizer.param_groups]

    def scale(self, factor: float) -> None:
        """Set all rates.

        Raises:
            ExperimentError: a group has no rate that could be set.
        """
        for group, rate in zip(self.optimizer.param_groups, self.base, strict=True):
            if rate is None:
                raise ExperimentError(
                    f"optimizer {self.name} keeps no 'lr' in its parameter groups, which a "
                    "schedule could change",
                    hint="schedule: constant, or keep it there: torch.optim.Optimizer's "
                    "constructor takes {'lr': lr} as defaults",
                )
            group["lr"] = rate * factor
