"""Frozen layers: parameters that training does not move."""

from __future__ import annotations

from torch import nn

from experiments.techniques.base import Arguments, Technique
from experiments.techniques.patterns import Patterns, matching, written


class Freeze(Technique):
    """Do not train the ``parameters`` of these names or patterns of names.

    They keep their first values bit for bit: no optimizer has them, so that no weight decay or
    momentum reaches them. Running statistics of a batch norm are not parameters.
    """

    name = "freeze"
    example = "'*.bias'"
    order = 200

    parameters: Patterns
    trained: Patterns = ()
    """Those that are trained all the same, where ``parameters`` match them too."""

    @property
    def written(self) -> Arguments:
        if not self.trained:
            return written(self.parameters)
        return {"parameters": written(self.parameters), "trained": written(self.trained)}

    def model(self, model: nn.Module) -> nn.Module:
        # One that is tied has several names.
        parameters = dict(model.named_parameters(remove_duplicate=False))
        frozen, trained = (
            {parameters[n] for n in matching(p, parameters, f"technique {self.label}", "parameter")}
            for p in (self.parameters, self.trained)
        )
        for parameter in frozen - trained:
            parameter.requires_grad_(False)
        return model
