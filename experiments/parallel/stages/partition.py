"""How a model is cut into pipeline stages: which modules each stage has, balanced by parameters.

A stage is the model itself without the modules of other stages, so that names of parameters are
those of the whole model. What is left out is ``None`` where the model has it as an attribute, and
absent from ``nn.Sequential`` and ``nn.ModuleList``.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Collection, Sequence

from torch import nn

from experiments.errors import ExperimentError

Unit = tuple[str, ...]
"""Names of modules that stay together."""


def units(model: nn.Module, plan: Sequence[str | Unit]) -> list[Unit]:
    """The units of a plan, in the order in which they are applied; ``blocks.*`` is one for each.

    Raises:
        ExperimentError: a name that the model does not have, or parameters outside of all units.
    """
    names = dict(model.named_modules())
    made: list[Unit] = []
    for entry in plan:
        if isinstance(entry, str) and entry.endswith("*"):
            parent = names.get(entry.removesuffix("*").removesuffix("."))
            prefix = entry.removesuffix("*")
            made += [(f"{prefix}{n}",) for n, _ in parent.named_children()] if parent else []
        else:
            made.append((entry,) if isinstance(entry, str) else entry)
    # A module that is an option of the model, such as a separate output layer, may be None.
    present = [tuple(name for name in unit if _has(model, name, names)) for unit in made]
    claimed = {name for unit in present for name in unit}
    for name, _ in model.named_parameters():
        if not any(name.startswith(f"{module}.") for module in claimed):
            raise ExperimentError(
                f"layout_plan: parameter {name} is in none of the modules that the pipeline cuts",
                hint="pipeline names all modules that have parameters, in their order",
            )
    return [unit for unit in present if unit]


def _has(model: nn.Module, name: str, names: Collection[str]) -> bool:
    if name in names:
        return True
    try:
        absent = functools.reduce(getattr, name.split("."), model) is None
    except AttributeError:
        absent = False
    if not absent:
        raise ExperimentError(
            f"layout_plan: the model has no module {name!r}",
            hint="names are those of model.named_modules()",
        )
    return False


def partition(model: nn.Module, plan: Sequence[str | Unit], stages: int) -> list[list[Unit]]:
    """The units of each stage: contiguous, and the largest stage as small as it can be.

    A module in several units counts where it is first.

    Raises:
        ExperimentError: fewer units with parameters than stages.
    """
    all_units, counted, sizes = units(model, plan), set[str](), []
    for unit in all_units:
        fresh = [name for name in unit if name not in counted]
        counted.update(fresh)
        modules = [model.get_submodule(name) for name in fresh]
        sizes.append(sum(p.numel() for module in modules for p in module.parameters()))
    trained = sum(size > 0 for size in sizes)
    if trained < stages:
        raise ExperimentError(
            f"layout: a model of {trained} layers with parameters cannot be cut into {stages} "
            "pipeline stages",
            hint="fewer stages, or a deeper model",
        )
    ends = [0, *_ends(sizes, stages)]
    return [all_units[low:high] for low, high in itertools.pairwise(ends)]


def _ends(sizes: Sequence[int], stages: int) -> list[int]:
    """Ends of contiguous parts, each with parameters, whose largest sum is least."""
    count, total = len(sizes), [0]
    for size in sizes:
        total.append(total[-1] + size)

    @functools.cache
    def best(end: int, parts: int) -> tuple[int, tuple[int, ...]] | None:
        """The least largest sum of the first ``end`` in ``parts``, with the parts' ends."""
        if parts == 1:
            return (total[end], (end,)) if total[end] else None
        made = []
        for low in range(1, end):
            before, rest = best(low, parts - 1), total[end] - total[low]
            if before is not None and rest:
                # Of equal ones the later: what has no parameters stays with what it follows.
                made.append((max(before[0], rest), -low, (*before[1], end)))
        return (lambda m: (m[0], m[2]))(min(made)) if made else None

    cheapest = best(count, stages)
    assert cheapest is not None
    return list(cheapest[1])


def stage(model: nn.Module, kept: Collection[str], cut: Collection[str]) -> nn.Module:
    """``model`` with the modules ``kept`` alone of those that are ``cut`` apart.

    The modules are the same objects; their containers are copies.
    """

    def view(module: nn.Module, prefix: str) -> nn.Module:
        made = copy.copy(module)
        made._modules = {}
        for name, child in module._modules.items():
            path = f"{prefix}{name}"
            if child is None or path in kept:
                made._modules[name] = child
            elif path in cut:
                if not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
                    made._modules[name] = None
            elif any(each.startswith(f"{path}.") for each in cut):
                made._modules[name] = view(child, f"{path}.")
            else:
                made._modules[name] = child
        return made

    return view(model, "")
