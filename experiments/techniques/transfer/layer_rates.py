"""Layer-wise learning rates (Howard & Ruder 2018, arXiv:1801.06146; Clark et al. 2020,
arXiv:2003.10555, 3.2): the nearer a layer is to the input, the slower it learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from experiments.optimizers.base import RATE_FACTOR
from experiments.techniques.base import Technique, Tensors


class LayerRates(Technique):
    """Multiply the learning rate of each layer by ``decay`` for each layer after it."""

    name = "layer_rates"
    order = 350

    decay: Annotated[float, Field(gt=0, le=1)]

    def parameter_groups(self, named_parameters: Tensors) -> Mapping[str, Mapping[str, float]]:
        layers = layers_of(named_parameters)
        factors = {layer: self.decay**i for i, layer in enumerate(reversed(layers))}
        return {
            _literal(name): {RATE_FACTOR: factors[layer]}
            for layer, names in layers.items()
            for name in names
        }


def layers_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of parameters by their layers, in the order of the model.

    A layer is what the outermost number in a name counts (``encoder.layers.3``, ``layer1.0``, or
    ``2`` of a ``Sequential``); without a number it is the module that has the parameter, or the
    parameter itself.
    """
    layers: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(".")
        end = next((i + 1 for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
        layers.setdefault(".".join(parts[:end]) or name, []).append(name)
    return layers


def _literal(name: str) -> str:
    """A pattern that matches ``name`` alone."""
    return name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
