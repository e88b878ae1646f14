"""A torch optimizer's parameter groups: options of some parameters, and rates a schedule scales.

A workload or a user's optimizer says which parameters get which options by a method
``parameter_groups(named_parameters)``: pattern of names (as ``fnmatch`` has it) -> options. Of the
patterns that match a parameter the first counts; options of the workload override those of the
optimizer, and those of a technique both of them; a frozen parameter has none, and a pattern may
match it alone. An option is a metaparameter of the optimizer, or ``learning_rate_factor``, by which
the parameter's learning rate is multiplied, or ``hidden``: False for embeddings and the output
layer, which muon leaves to AdamW; of a workload without the method the last matrix that is trained
is taken for that of the output layer. A usual one that the optimizer lacks is passed over.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from experiments.errors import ExperimentError, nearest
from experiments.optimizers.base import HIDDEN, RATE_FACTOR, Optimizer, Options
from experiments.search.domains import DOMAINS
from workloads.base import Workload


def parameter_options(
    optimizer: Optimizer,
    workload: Any,
    parameters: Mapping[str, Tensor],
    techniques: Iterable[Any] = (),
    model: Collection[str] = (),
) -> dict[str, dict[str, float]]:
    """The options of each parameter that has any, by its name.

    Args:
        parameters: those that are trained.
        techniques: those of the study, in their order.
        model: the names of all parameters of the model, where some are frozen.

    Raises:
        ExperimentError: a pattern that matches nothing, an unknown option, or one that is not a
            number, or not a legal one.
    """
    options: dict[str, dict[str, float]] = {}
    frozen = {whole_name(name) for name in model} - parameters.keys()
    for owner, groups, multiplies in (
        (f"optimizer {optimizer.label}", optimizer.parameter_groups(parameters), False),
        (f"workload {workload.name}", workload.parameter_groups(parameters), False),
        *((f"technique {t.label}", t.parameter_groups(parameters), True) for t in techniques),
    ):
        matched: dict[str, Options] = {}
        for pattern, given in groups.items():
            names = [name for name in parameters if fnmatchcase(name, pattern)]
            if not names and not any(fnmatchcase(name, pattern) for name in frozen):
                raise ExperimentError(
                    f"parameter_groups of {owner}: no parameter is called {pattern!r}",
                    hint=_nearest_parameter(pattern, parameters),
                )
            used = _checked(given, owner, optimizer)
            matched = {**dict.fromkeys(names, used), **matched}
        for name, given in matched.items():
            before = options.get(name, {})
            options[name] = {**before, **given}
            if multiplies and RATE_FACTOR in given:
                options[name][RATE_FACTOR] = before.get(RATE_FACTOR, 1.0) * given[RATE_FACTOR]
    if infers_output(optimizer, workload):
        matrices = [name for name, parameter in parameters.items() if parameter.dim() == 2]
        for name in matrices[-1:]:
            options[name] = {HIDDEN: 0.0, **options.get(name, {})}
    return {name: given for name, given in options.items() if given}


def infers_output(optimizer: Optimizer, workload: Any) -> bool:
    """Whether the last matrix is taken for the output layer, since nothing says which is."""
    of_workload = getattr(type(workload), "parameter_groups", None)
    return optimizer.uses_hidden and of_workload is Workload.parameter_groups


def whole_name(name: str) -> str:
    """The name that a parameter has without a parametrization (``torch.nn.utils.parametrize``)."""
    return _PARAMETRIZED.sub(r".\1", f".{name}").removeprefix(".")


def _checked(given: Mapping[str, Any], owner: str, optimizer: Optimizer) -> dict[str, float]:
    """The options among these that the optimizer has."""
    for name, value in given.items():
        if name == "learning_rate":
            raise ExperimentError(
                f"parameter_groups of {owner}: learning_rate is tuned for the whole model",
                hint=f"give {RATE_FACTOR}, by which it is multiplied",
            )
        if name == HIDDEN and isinstance(value, bool):
            continue
        legal = {RATE_FACTOR, HIDDEN, *optimizer.arguments, *DOMAINS} - {"learning_rate"}
        if name not in legal:
            message = f"parameter_groups of {owner}: unknown option {name!r}"
            raise ExperimentError(message, hint=nearest(name, sorted(legal)))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ExperimentError(
                f"parameter_groups of {owner}: {name} is {value!r}, and must be a number"
            )
        domain = {**DOMAINS, **optimizer.domains}.get(name)
        if name in optimizer.arguments and domain is not None and float(value) not in domain:
            raise ExperimentError(
                f"parameter_groups of {owner}: {name} is {value!r}, which is outside of {domain}, "
                f"the legal values of {optimizer.label}",
                hint=f"another value, or no {name} of its own for these parameters",
            )
    has = {RATE_FACTOR, *optimizer.arguments, *([HIDDEN] if optimizer.uses_hidden else [])}
    return {name: float(value) for name, value in given.items() if name in has}


_PARAMETRIZED = re.compile(r"\.parametrizations\.(\w+)\.original")


def _nearest_parameter(pattern: str, parameters: Iterable[str]) -> str:
    """A hint: the parameter whose name is most like ``pattern``, or all of them.

    Of more than a dozen the numbers in their names are replaced by ``*``, so that the blocks of a
    deep model are written once; each is a pattern that matches.
    """
    names = list(parameters)
    if len(names) <= 12 or difflib.get_close_matches(pattern, names, cutoff=0.5):
        return nearest(pattern, names)
    blocks = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names)
    return f"known: {', '.join(blocks)}"


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
