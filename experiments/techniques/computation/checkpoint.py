"""Activation recomputation (Chen et al. 2016, arXiv:1604.06174): ``torch.utils.checkpoint``."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from torch import nn
from torch.overrides import _get_current_function_mode
from torch.utils.checkpoint import checkpoint

from experiments.errors import ExperimentError
from experiments.techniques.base import Technique


class Checkpoint(Technique):
    """Keep only the inputs of blocks for the backward pass, which computes the rest again.

    Random numbers of dropout are the same again. Without a pattern the blocks are the modules in a
    ``ModuleList`` or ``Sequential`` that hold several others, or else the whole model.
    """

    name = "checkpoint"
    stacks = False
    why_not_stacked = "torch.func does not recompute activations"

    modules: str = "auto"
    """A pattern of the names of modules, such as ``blocks.*``; none may lie inside another."""

    def model(self, model: nn.Module) -> nn.Module:
        blocks = _blocks(model) if self.modules == "auto" else self._named(model)
        for block in blocks:
            block.forward = partial(
                checkpoint, block.forward, use_reentrant=False, context_fn=_contexts
            )
        return model

    def _named(self, model: nn.Module) -> list[nn.Module]:
        """
        Raises:
            ExperimentError: the pattern fits no module, or one inside another.
        """
        names = [name for name, _ in model.named_modules() if fnmatchcase(name, self.modules)]
        outer = [n for n in names if not any(n.startswith(f"{other}.") for other in names)]
        if not names:
            raise ExperimentError(
                f"technique {self.label}: no module of the model is called {self.modules}",
                hint="names are those of named_modules, such as blocks.*",
            )
        return [model.get_submodule(name) for name in outer]


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost ones."""
    blocks: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            in_list = isinstance(module, nn.ModuleList | nn.Sequential)
            if in_list and len(list(child.modules())) > 2:
                blocks.append(child)
            else:
                visit(child)

    visit(model)
    return blocks or [model]


def _contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """For the forward pass, and for its repetition: there the numbers of dropout are drawn again
    from where the block began."""
    drawing = _get_current_function_mode()
    return nullcontext(), nullcontext() if drawing is None else copy.copy(drawing)
