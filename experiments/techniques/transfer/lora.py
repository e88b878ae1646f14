"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685), by ``torch.nn.utils.parametrize``."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from experiments.errors import ExperimentError
from experiments.techniques.base import Arguments, Technique
from experiments.techniques.patterns import Patterns, matching, written


class LowRank(nn.Module):
    """The parametrization W + s B A of a matrix W, ``(out, in)``: A is ``(rank, in)``, with the
    first values of a linear layer, and B ``(out, rank)``, zero at first."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.A = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.B = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight of the layer."""
        return weight + self.scale * (self.B @ self.A)


class Lora(Technique):
    """Train low-rank adapters of ``rank`` on linear layers, and nothing else of the model.

    A layer's weight is W + (alpha / rank) B A, where W does not move.
    """

    name = "lora"
    example = "8"
    order = 300
    needs_whole = "weights"

    rank: Annotated[int, Field(ge=1)]
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Scale times rank; the rank unless given, so that the scale is 1."""
    layers: Patterns = ("*",)
    """The linear layers that get an adapter, of those that are not ``trained``."""
    trained: Patterns = ()
    """Parameters that are trained as they are, such as a new head's."""

    @property
    def written(self) -> Arguments:
        of = {"rank": self.rank, "alpha": self.alpha}
        values: dict[str, Any] = {name: value for name, value in of.items() if value is not None}
        for name in ("layers", "trained"):
            if getattr(self, name) != getattr(type(self), name):
                values[name] = written(getattr(self, name))
        return values if len(values) > 1 else self.rank

    def model(self, model: nn.Module) -> nn.Module:
        owner = f"technique {self.label}"
        parameters = dict(model.named_parameters(remove_duplicate=False))
        trained = {parameters[n] for n in matching(self.trained, parameters, owner, "parameter")}
        for parameter in parameters.values():
            parameter.requires_grad_(parameter in trained)
        linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
        chosen = matching(self.layers, linear, owner, "linear layer")
        adapted = [n for n in linear if n in chosen and linear[n].weight not in trained]
        if not adapted:
            raise ExperimentError(
                f"{owner}: the model has no linear layer that is not trained as it is",
                hint="leave trained out, or choose other layers",
            )
        for name in adapted:
            self._adapt(name, linear[name])
        return model

    def _adapt(self, name: str, layer: nn.Linear) -> None:
        owner = f"technique {self.label}"
        if parametrize.is_parametrized(layer, "weight"):
            raise ExperimentError(
                f"{owner}: another technique has changed the weight of layer {name}",
                hint="keep one of the two",
            )
        if self.rank > min(layer.weight.shape):
            out, into = layer.weight.shape
            raise ExperimentError(
                f"{owner}: rank {self.rank} is more than layer {name} has, {out} × {into}",
                hint=f"at most {min(layer.weight.shape)}, or choose the layers: "
                "{rank: …, layers: …}",
            )
        scale = 1.0 if self.alpha is None else self.alpha / self.rank
        adapter = LowRank(layer.weight.detach(), self.rank, scale)
        parametrize.register_parametrization(layer, "weight", adapter)
