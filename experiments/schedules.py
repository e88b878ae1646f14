"""Learning-rate schedules: the factor that multiplies the learning rate at each step.

Shares of the budget (``decay``, ``warmup``) are what an experiment file gives; a trial holds them
resolved, in steps, since its trajectory depends on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from experiments.errors import ExperimentError, nearest
from experiments.optimizers.base import Space
from experiments.plan import Value

SHARES = {"decay": "decay_steps", "warmup": "warmup_steps"}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``shape(progress, end_factor)``: the factor after warmup; ``progress`` in [0, 1]."""

    name: str
    shape: Callable[[float, float], float] | None
    space: Space = field(default_factory=dict)

    @property
    def arguments(self) -> frozenset[str]:
        """Legal metaparameter names, as written in an experiment file."""
        decaying = {"decay", "decay_steps", "end_factor"} if self.shape else set()
        return frozenset(decaying | {"warmup", "warmup_steps"})

    def resolve(self, values: Mapping[str, Value], budget_steps: int) -> dict[str, Value]:
        """Shares of the budget become steps (at least one); the rest is passed on.

        Raises:
            ExperimentError: a share outside [0, 1].
        """
        resolved: dict[str, Value] = {}
        for name, value in values.items():
            if name in SHARES:
                if not 0 <= float(value) <= 1:
                    raise ExperimentError(
                        f"schedule {self.name}: {name} is a share of the budget, not {value:g}",
                        hint=f"give {name} in [0, 1], or {SHARES[name]} in steps",
                    )
                resolved[SHARES[name]] = max(1, round(float(value) * budget_steps))
            else:
                resolved[name] = value
        return resolved

    def factor(self, step: int, metaparameters: Mapping[str, Value]) -> float:
        """The factor of the update that makes step ``step`` (0-based) into ``step + 1``.

        Linear decay is the paper's (Shallue et al. 2019, appendix): 1 - (1-α) t/T for t <= T,
        then α; cosine goes from 1 to α over the same T. Warmup rises linearly to 1 over its
        steps, the first update already being larger than 0, and the decay starts after it.
        """
        warmup = int(metaparameters.get("warmup_steps", 0))
        if step < warmup:
            return (step + 1) / warmup
        if self.shape is None:
            return 1.0
        length = int(metaparameters["decay_steps"])
        progress = min((step - warmup) / length, 1.0)
        return self.shape(progress, float(metaparameters.get("end_factor", 0.0)))

    def is_constant(self, metaparameters: Mapping[str, Value]) -> bool:
        """Whether ``factor`` is 1 at every step."""
        return self.shape is None and not int(metaparameters.get("warmup_steps", 0))


def _linear(progress: float, end: float) -> float:
    return 1 - (1 - end) * progress


def _cosine(progress: float, end: float) -> float:
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * progress))


_DECAY: Space = {"decay": {"linear": [0.5, 1]}, "end_factor": 0.01}
_KNOWN = {
    s.name: s
    for s in (
        Schedule(name="constant", shape=None),
        Schedule(name="linear", shape=_linear, space=_DECAY),
        Schedule(name="cosine", shape=_cosine, space={**_DECAY, "end_factor": 0.0}),
    )
}


def names() -> list[str]:
    """The registered names."""
    return list(_KNOWN)


def get(name: str) -> Schedule:
    """The schedule ``name``.

    Raises:
        ExperimentError: there is none.
    """
    if name not in _KNOWN:
        raise ExperimentError(f"unknown schedule {name!r}", hint=nearest(name, _KNOWN))
    return _KNOWN[name]
