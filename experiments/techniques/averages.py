"""Averages of weights along the trajectory: stochastic weight averaging, and lookahead."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.techniques.base import State, Step, Technique, Tensors

SINGLE_AVERAGE = "evaluations measure one average of the weights"


class Lookahead(Technique):
    """Move slow weights by ``share`` of the way to the trained ones, after each ``every`` steps.

    The trained weights go on from the slow ones, which are those that evaluations measure (Zhang,
    Lucas, Hinton & Ba 2019, arXiv:1907.08610, algorithm 1: k steps, and α).
    """

    name = "lookahead"
    example = "5"
    order = 450
    excludes = dict.fromkeys(("ema", "swa"), SINGLE_AVERAGE)

    every: Annotated[int, Field(ge=1)]
    share: Annotated[float, Field(gt=0, le=1)] = 0.5

    def start(self, weights: Tensors) -> State:
        return {name: weight.clone() for name, weight in weights.items()}

    def is_due(self, step: int) -> bool:
        """Whether the slow weights move in the step after ``step`` others."""
        return (step + 1) % int(self.every) == 0

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        if not step.due:
            return weights
        due = (step.number + 1) % self.every == 0
        moved = {}
        for name, weight in weights.items():
            slow = state[name]
            state[name] = torch.where(due, slow + self.share * (weight - slow), slow)
            moved[name] = torch.where(due, state[name], weight)
        return moved

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        return dict(state)


class Swa(Technique):
    """Evaluate the plain average of the weights from the share ``begin`` of the budget on.

    The weights are averaged every ``every`` steps, equally, as ``torch.optim.swa_utils`` does
    (Izmailov et al. 2018, arXiv:1803.05407). Before that evaluations measure the trained weights;
    training does not see the average.
    """

    name = "swa"
    order = 900
    excludes = dict.fromkeys(("ema", "lookahead"), SINGLE_AVERAGE)
    uses_budget = True
    budget_shares = ("begin",)

    begin: Annotated[float, Field(ge=0, le=1)] = 0.75
    every: Annotated[int, Field(ge=1)] = 1

    @property
    def acts_from(self) -> int:
        """The first step that is averaged: the average of one is the weights themselves."""
        return max(1, round(float(self.begin) * (self.budget_steps or 0)))

    def start(self, weights: Tensors) -> State:
        first = next(iter(weights.values()))
        return {
            "average": {name: weight.clone() for name, weight in weights.items()},
            "count": first.new_zeros((), dtype=torch.int64),
        }

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        after = step.number + 1 - self.acts_from
        due = (after >= 0) & (after % self.every == 0)
        count, average = state["count"], state["average"]
        state["average"] = {
            name: torch.where(
                due, average[name] + (weight - average[name]) / (count + 1), average[name]
            )
            for name, weight in weights.items()
        }
        state["count"] = count + due
        return weights

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        averaged = state["count"] > 0
        return {
            name: torch.where(averaged, average, weights[name])
            for name, average in state["average"].items()
        }
