"""The optimizer and the schedule of a program: names that tables show, and what the search gives.

What they do is the program's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments import optimizers, schedules
from experiments.optimizers import Optimizer
from experiments.schedules import Schedule
from experiments.search.space import Value
from workloads.user_code.program import OF_TRIAL, Program

OWN = "program"
"""The name of its optimizer, where no factor of the grid names one."""
_SCHEDULE = "in-program"


class ProgramOptimizer(Optimizer):
    """Its arguments are the ``{names}`` of the command that the search gives."""

    def __init__(self, name: str, arguments: Iterable[str]) -> None:
        self.name, self.arguments = name, frozenset(arguments)
        self.space: Mapping[str, Any] = {}
        self.defaults: Mapping[str, Value] = {}
        self.kind = None

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        return dict(metaparameters)


class ProgramSchedule(Schedule):
    """No name of a command is taken for a length."""

    name = _SCHEDULE

    def __init__(self) -> None:
        super().__init__()
        self.shares, self.amounts, self.domains = {}, {}, {}
        self._lengths, self.arguments = frozenset[str](), frozenset[str]()

    def shape(self, step: int) -> float:  # noqa: ARG002
        return 1.0


def load(
    program: Program | None, optimizer: str, schedule: str, base: str | None
) -> tuple[Optimizer, Schedule]:
    """The optimizer and the schedule of a study: of its program, or loaded by their names."""
    if program is not None:
        return ProgramOptimizer(optimizer, argument_names(program)), ProgramSchedule()
    return optimizers.get(optimizer, base), schedules.get(schedule, base)


def argument_names(program: Program) -> list[str]:
    """The names of the command that the search gives, in its order."""
    others = {*OF_TRIAL, "optimizer", *program.values}
    return [name for name in program.names if name not in others]
