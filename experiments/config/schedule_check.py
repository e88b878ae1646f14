"""What a user's schedules say, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from experiments import schedules
from experiments.config.combinations import Combination
from experiments.errors import ExperimentError
from experiments.plan import Value
from experiments.schedules import Schedule

if TYPE_CHECKING:
    from experiments.config.file import Experiment

_STEPS = 100
"""Of a small budget, at which a schedule is asked for all its factors."""


def check_schedules(experiment: Experiment, combinations: Sequence[Combination]) -> None:
    """Each schedule that is no registered one must have its arguments, and give a factor at every
    step: with metaparameters from the middle and from both ends of its space.

    Raises:
        ExperimentError: it does not. What a user's own code raises passes unchanged.
    """
    seen: set[tuple[str, str]] = set()
    plans = list(dict.fromkeys(c.schedule for c in combinations))
    for combination in combinations:
        schedule = combination.schedule
        key = schedule.name, combination.optimizer.name  # each has values of its own
        if schedule.name in schedules.names() or key in seen:
            continue
        seen.add(key)
        try:
            for u in (0.5, 0.0, 1.0):
                point = {name: dim.value(u) for name, dim in combination.space.items()}
                _check(schedule, {**combination.fixed, **point})
        except ExperimentError as error:
            path = (*experiment.said("schedule"), plans.index(schedule))
            raise experiment.error(path, str(error), error.hint) from None


def _check(schedule: Schedule, values: Mapping[str, Value]) -> None:
    given = {name: value for name, value in values.items() if name in schedule.arguments}
    resolved = schedule.resolve(given, _STEPS)
    for name in schedule.required:
        if name not in resolved:
            short = schedule.counterpart(name) or name
            raise ExperimentError(
                f"schedule {schedule.label} needs a value of {short}",
                hint=f"in an experiment: search: {{{short}: …}}; or a space, or a default in its "
                "shape",
            )
    for step in range(_STEPS):
        factor: Any = schedule.factor(step, resolved)
        if not isinstance(factor, Real) or not 0 <= float(factor) < math.inf:
            raise ExperimentError(
                f"schedule {schedule.label}: its shape gives {factor!r} at step {step} of {_STEPS} "
                f"with {_text(resolved)}",
                hint="return a number from 0 on: what the learning rate is multiplied by",
            )


def _text(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "no arguments"
