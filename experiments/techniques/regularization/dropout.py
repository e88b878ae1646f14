"""Dropout (Srivastava et al. 2014) and stochastic depth (Huang et al. 2016, arXiv:1603.09382).

Random numbers follow the example, as all of a forward pass do: micro-batches, workers and stacks
drop the same.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from experiments.errors import ExperimentError
from experiments.techniques.base import Technique

_ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
    nn.Softplus,
    nn.Sigmoid,
    nn.Tanh,
)
"""Modules without parameters, so that a dropout behind them changes no parameter's name."""


class Dropout(Technique):
    """Drop each activation with probability ``rate`` in training, and scale up the others.

    It sets the rate of all dropout modules of the model. A model without any gets a dropout behind
    each activation module (``nn.ReLU``, ``nn.GELU``, …).
    """

    name = "dropout"
    order = 200

    rate: Annotated[float, Field(ge=0, lt=1)]

    def model(self, model: nn.Module) -> nn.Module:
        """
        Raises:
            ExperimentError: the model has neither dropout nor activation modules.
        """
        dropouts = [module for module in model.modules() if isinstance(module, _DropoutNd)]
        for dropout in dropouts:
            dropout.p = float(self.rate)
        if dropouts:
            return model
        places = [
            (parent, name, child)
            for parent in model.modules()
            for name, child in parent._modules.items()  # one module may have several names
            if isinstance(child, _ACTIVATIONS)
        ]
        if not places:
            raise ExperimentError(
                f"technique {self.label}: the model has no dropout to set, and no activation "
                "module to put it behind",
                hint="give the model nn.Dropout modules, or write its activations as modules",
            )
        for parent, name, child in places:
            setattr(parent, name, nn.Sequential(child, nn.Dropout(float(self.rate))))
        return model


class StochasticDepth(Technique):
    """Leave out each residual branch with a probability that grows over the blocks up to ``rate``.

    The probability of branch l of L is rate · l / L, or ``rate`` for all with ``rule: uniform``; it
    is drawn for each example, and branches that stay are scaled up
    (``torchvision.ops.stochastic_depth``). Branches are those of torchvision's residual networks,
    of ``resnet8``, of this project's and torch's Transformers, or the modules that ``branches``
    names by patterns: the output of each is what a residual connection adds.
    """

    name = "stochastic_depth"
    order = 210

    rate: Annotated[float, Field(ge=0, lt=1)]
    rule: Literal["linear", "uniform"] = "linear"
    branches: tuple[str, ...] = ()

    def model(self, model: nn.Module) -> nn.Module:
        """
        Raises:
            ExperimentError: the model has no residual branch.
        """
        branches = _branches(model, self.branches)
        if not branches:
            named = f"no module is called {' or '.join(self.branches)}" if self.branches else ""
            raise ExperimentError(
                f"technique {self.label}: "
                f"{named or 'the model has no residual branch that is known'}",
                hint="name the modules whose output a residual connection adds: "
                "stochastic_depth: {rate: 0.1, branches: ['blocks.*.mlp']}",
            )
        for place, branch in enumerate(branches, start=1):
            share = place / len(branches) if self.rule == "linear" else 1.0
            branch.register_forward_hook(partial(_drop, float(self.rate) * share))
        return model


def _drop(rate: float, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """A forward hook of the last module of a branch."""
    del inputs
    from torchvision.ops import stochastic_depth

    dropped: Tensor = stochastic_depth(output, rate, "row", module.training)
    return dropped


_RESIDUAL: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({"conv1", "bn1", "conv2", "bn2", "conv3", "bn3"}), ("bn3",)),
    (frozenset({"conv1", "bn1", "conv2", "bn2"}), ("bn2",)),
    (
        frozenset({"self_attn", "linear1", "linear2", "dropout1", "dropout2"}),
        ("dropout1", "dropout2"),
    ),
    (frozenset({"attention_norm", "attention", "mlp_norm", "mlp"}), ("attention", "mlp")),
    (frozenset({"first", "second"}), ("second",)),
)
"""Children of a residual block, and those of them whose outputs are added: torchvision's bottleneck
and basic block, ``torch.nn.TransformerEncoderLayer``, blocks of ``workloads.text.lm_transformer``
and of ``workloads.resnet8``. The first that fits counts."""


def _branches(model: nn.Module, patterns: tuple[str, ...]) -> list[nn.Module]:
    """The last module of each residual branch, in the order of the model."""
    if patterns:
        return [
            module
            for name, module in model.named_modules()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
    branches = []
    for block in model.modules():
        children = dict(block.named_children())
        ends = next((ends for known, ends in _RESIDUAL if known <= children.keys()), ())
        branches += [children[name] for name in ends]
    return branches
