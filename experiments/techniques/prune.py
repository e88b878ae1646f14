"""Pruning: a share of the weights is zero, chosen at initialization or gradually in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from experiments.counter_random import uniform
from experiments.errors import ExperimentError
from experiments.techniques.base import State, Step, Technique, Tensors
from experiments.techniques.patterns import EMBEDDINGS, matrices
from workloads.generated.counters import mixed


class Prune(Technique):
    """Keep the share ``sparsity`` of the weights of linear layers and convolutions at zero.

    What is pruned are the weights of least size (``by: magnitude``), any (``random``), or those
    whose size times that of the gradient is least (``gradient``: SNIP, Lee, Ajanthan & Torr 2019,
    arXiv:1810.02340). The first two are chosen at initialization; the last on the batch of the
    first step, which moves no weight. With ``until``, a share of the budget, sparsity grows in
    ``stages`` from the share ``begin`` on: it is ``sparsity`` · (1 - (1 - x)³) at the share x of
    that time (Zhu & Gupta 2017, arXiv:1710.01878).

    Weights are compared within a layer, and for ``by: gradient`` over all layers, unless ``scope``
    says otherwise. ``structure: units`` prunes whole rows, the outputs of a layer, by the sum of
    squares (or of the sizes times the gradient) of each, and spares the last layer. Norms, biases
    and parameters that match ``exclude`` are never pruned.
    """

    name = "prune"
    order = 600
    follows_average = True
    budget_shares = ("until", "begin")
    excludes = {  # noqa: RUF012
        "quantize": "rounding makes more weights zero than were asked for",
        "lora": "the adapters would be pruned, and not the weights of the layers",
        **dict.fromkeys(("sam", "noise_scale"), "gradients of pruned weights would count"),
    }

    sparsity: Annotated[float, Field(gt=0, lt=1)]
    by: Literal["magnitude", "random", "gradient"] = "magnitude"
    structure: Literal["weights", "units"] = "weights"
    until: Annotated[float, Field(gt=0, le=1)] | None = None
    begin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    stages: Annotated[int, Field(ge=1)] = 50
    scope: Literal["layer", "model"] | None = None
    exclude: tuple[str, ...] = EMBEDDINGS

    def __post_init__(self) -> None:
        if self.until is None and (self.begin != 0.0 or self.stages != 50):
            raise ValueError("begin and stages are those of gradual pruning: give until, too")
        if self.until is not None and self.by == "gradient":
            raise ValueError("by: gradient prunes once, in the first step: leave until out")
        if self.until is not None and self.until <= self.begin:
            raise ValueError("until must be later than begin")
        if self.structure == "units" and self.scope == "model":
            raise ValueError("units are compared within a layer: leave scope out")

    @property
    def uses_budget(self) -> bool:  # type: ignore[override]
        """Whether sparsity grows with the share of the budget."""
        return self.until is not None

    @property
    def acts_from(self) -> int:
        """With ``until``, when the model has ``sparsity``: before, it is a less sparse one."""
        return self._ends[1] - 1 if self.until is not None else 0

    def model(self, model: nn.Module) -> nn.Module:
        """The model without what is pruned at initialization.

        Raises:
            ExperimentError: there is nothing to prune.
        """
        weights = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        if not self._names(weights):
            last = " and the last layer" if self.structure == "units" else ""
            raise ExperimentError(
                f"technique {self.label}: the model has no weights to prune",
                hint=f"norms, biases, embeddings{last} are left alone",
            )
        if self.until is None and self.by != "gradient":
            scores = self._sizes(weights)
            if self.by == "random":
                scores = {name: torch.rand_like(score) for name, score in scores.items()}
            for name, kept in self._kept(scores, self.sparsity).items():
                weights[name].mul_(kept)
        return model

    def start(self, weights: Tensors) -> State:
        if self.until is None and self.by != "gradient":
            # What the model lost has the least size; of equal weights of zero any may be kept.
            return {"kept": self._kept(self._sizes(weights), self.sparsity)}
        return {"kept": {name: torch.ones_like(weights[name]) for name in self._names(weights)}}

    def is_due(self, step: int) -> bool:
        """Whether the choice changes in the step after ``step`` others."""
        if self.by == "gradient":
            return step == 0
        if self.until is None:
            return False
        return bool(self._changes(torch.tensor(step)))

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Step) -> Tensors:
        kept = state["kept"]
        if self.by == "gradient" and step.due:
            first = step.number == 0
            scores = {
                name: (gradients[name] * weights[name]).abs() if name in gradients else each * 0
                for name, each in kept.items()
            }
            chosen = self._kept(scores, self.sparsity)
            state["kept"] = kept = {
                name: torch.where(first, chosen[name], each) for name, each in kept.items()
            }
            gradients = {name: torch.where(first, 0.0, each) for name, each in gradients.items()}
        return {name: g * kept[name] if name in kept else g for name, g in gradients.items()}

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        if self.until is not None and step.due:
            random = self.by == "random"
            scores = self._random(weights, step.seed) if random else self._sizes(weights)
            chosen = self._kept(scores, self._sparsity(self._stage(step.number + 1)))
            due = self._changes(step.number)
            state["kept"] = {
                name: torch.where(due, chosen[name], kept) for name, kept in state["kept"].items()
            }
        return self.evaluated(weights, state)

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        """Of an average of weights, too: it may hold what was pruned later."""
        kept = state["kept"]
        return {**weights, **{name: weights[name] * each for name, each in kept.items()}}

    @property
    def _ends(self) -> tuple[int, int]:
        """Steps between which sparsity grows."""
        first = round(float(self.begin) * (self.budget_steps or 0))
        return first, max(first + 1, round(float(self.until or 0) * (self.budget_steps or 0)))

    def _stage(self, steps: Tensor) -> Tensor:
        """How often sparsity has grown after so many steps."""
        first, last = self._ends
        return ((steps - first) * self.stages // (last - first)).clamp(0, self.stages)

    def _changes(self, step: Tensor) -> Tensor:
        return self._stage(step + 1) != self._stage(step)

    def _sparsity(self, stage: Tensor) -> Tensor:
        share = stage.to(torch.float64) / self.stages
        return self.sparsity * (1 - (1 - share) ** 3)

    def _names(self, weights: Tensors) -> list[str]:
        names = matrices(weights, self.exclude)
        return names[:-1] if self.structure == "units" else names

    def _sizes(self, weights: Tensors) -> dict[str, Tensor]:
        power = 2 if self.structure == "units" else 1
        return {name: weights[name].abs() ** power for name in self._names(weights)}

    def _random(self, weights: Tensors, seed: Tensor) -> dict[str, Tensor]:
        """Of each weight a number, the same in every step."""
        key = mixed(seed.clone())
        scores, first = {}, 0
        for name in self._names(weights):
            scores[name] = uniform(key, first, weights[name])
            first += weights[name].numel()
        return scores

    def _kept(self, scores: Mapping[str, Tensor], sparsity: Tensor | float) -> dict[str, Tensor]:
        """1 for each weight that stays and 0 for the others: those of the least scores."""
        if self.structure == "units":
            return {
                name: (
                    _largest(score.flatten(1).sum(1), sparsity).view(-1, *[1] * (score.dim() - 1))
                    * torch.ones_like(score)
                )
                for name, score in scores.items()
            }
        if (self.scope or ("model" if self.by == "gradient" else "layer")) == "layer":
            return {n: _largest(s.flatten(), sparsity).view_as(s) for n, s in scores.items()}
        together = _largest(torch.cat([score.flatten() for score in scores.values()]), sparsity)
        parts = together.split([score.numel() for score in scores.values()])
        return {
            name: part.view_as(score)
            for (name, score), part in zip(scores.items(), parts, strict=True)
        }


def _largest(scores: Tensor, sparsity: Tensor | float) -> Tensor:
    """1 for all of ``scores``, ``(n,)``, but the least ``sparsity`` · n, to the nearest number."""
    places = torch.arange(len(scores), device=scores.device)
    least = torch.as_tensor(sparsity * len(scores), dtype=torch.float64, device=scores.device)
    order = scores.argsort(stable=True)
    return torch.zeros_like(scores).scatter(0, order, (places >= least.round()).to(scores.dtype))
