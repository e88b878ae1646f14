"""From which step on a trial's technique, schedule or ramp acts: the column ``acts_from``.

Rows of versions before 9 do not have the column. Of packaged techniques and schedules it follows
from what they do have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results.batch_phases import BatchPhases
from results.storage.values import mapping

SCHEDULE, RAMP = "schedule", "ramp"
"""The parts that are not techniques."""


def acts_from(row: Mapping[str, Any]) -> dict[str, int]:
    """Updates before each part of the training algorithm acts in this trial, by technique,
    ``schedule`` or ``ramp``; without those that act in the first one, and those not known.

    Args:
        row: with the columns acts_from, technique, schedule, metaparameters, budget_steps and
            batch_sizes of trials; a null or a missing one is unknown.
    """
    recorded = row.get("acts_from")
    if isinstance(recorded, str):
        return {name: int(steps) for name, steps in mapping(recorded, "acts_from").items()}
    begins = {}
    budget = row.get("budget_steps")
    if budget is not None and budget == budget:  # no NaN
        for name, given in _mapping(row, "technique").items():
            arguments = given if isinstance(given, Mapping) else {"begin": given}
            begins[name] = _of_technique(name, arguments, int(budget))
    values, phases = _mapping(row, "metaparameters"), BatchPhases.of(row.get("batch_sizes"))
    if phases is None:
        begins[SCHEDULE] = _of_schedule(row.get(SCHEDULE), values)
    elif len(phases.starts) > 1:
        begins[RAMP] = phases.starts[1]
    return {name: steps for name, steps in begins.items() if steps}


def _of_technique(name: str, arguments: Mapping[str, Any], budget: int) -> int:
    """``Technique.acts_from`` of the packaged technique ``name``."""
    if name == "swa":
        return max(1, round(float(arguments.get("begin", 0.75)) * budget))
    if name == "prune" and arguments.get("until") is not None:
        first = round(float(arguments.get("begin", 0.0)) * budget)
        return max(first + 1, round(float(arguments["until"]) * budget)) - 1
    return 0


def _of_schedule(name: Any, values: Mapping[str, Any]) -> int:
    """``Schedule.acts_from`` of the packaged schedule ``name``."""
    warmup = int(values.get("warmup_steps", 0))
    if name == "wsd" and "stable_steps" in values:
        return warmup + int(values["stable_steps"]) + 1
    if name == "step" and "decay_steps" in values:
        return warmup - int(values["decay_steps"]) // -int(values.get("drops", 2))
    return 0


def _mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    cell = row.get(name)
    if isinstance(cell, str):
        return mapping(cell, name) if cell else {}
    return cell if isinstance(cell, Mapping) else {}
