"""What ``layout: auto`` has chosen, and from what: a column of the results, and a line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.plan import Layout

OUT_OF_MEMORY = "out of memory"
_SWITCHES = ("sequence", "zero2")
"""Dimensions without a number."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A layout with a micro-batch, as it was tried."""

    layout: Layout
    seconds: float | None = None
    """Of a step of one model, or of a stack of models; ``None``: it failed."""
    failure: str | None = None
    """``OUT_OF_MEMORY``, or what it could not do."""

    def columns(self) -> dict[str, Any]:
        """As the column ``layout_choice`` has it."""
        of = dict(self.layout.dimensions) or {"data": self.layout.workers}
        made: dict[str, Any] = {"layout": of, "micro_batch": self.layout.micro_batch}
        if self.failure is not None:
            return {**made, "failure": self.failure}
        return {**made, "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True)
class LayoutChoice:
    """The attempts in their order, and the best of them."""

    chosen: Attempt
    attempts: tuple[Attempt, ...]
    models: int
    """Trials of the pack that was tried."""

    @property
    def layout(self) -> Layout:
        """The layout that trains."""
        return self.chosen.layout

    def columns(self) -> dict[str, Any]:
        """The content of the column ``layout_choice``."""
        made = self.chosen.columns()
        return {"chosen": made, "from": [each.columns() for each in self.attempts]}


def describe(columns: Mapping[str, Any]) -> str:
    """The content of the column ``layout_choice`` in one line, the chosen layout first:
    ``data 2 at micro-batch 32: 1.2 ms a step; tensor 2 at micro-batch 64: out of memory``."""
    chosen = columns["chosen"]
    others = [each for each in columns["from"] if each != chosen]
    return "; ".join(_text(each) for each in (chosen, *others))


def _text(attempt: Mapping[str, Any]) -> str:
    sizes = attempt["layout"].items()
    name = " × ".join(name if name in _SWITCHES else f"{name} {size}" for name, size in sizes)
    result = attempt.get("failure") or f"{_seconds(attempt['seconds'])} a step"
    return f"{name} at micro-batch {attempt['micro_batch']}: {result}"


def best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the shortest step, of equal ones the first; ``None``: all have failed."""
    timed = [(each.seconds, i) for i, each in enumerate(attempts) if each.seconds is not None]
    return attempts[min(timed)[1]] if timed else None


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
