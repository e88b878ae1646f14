"""Whether a technique acted at all: how many best trials reached the target after it had begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from analysis.curves.curve import Curve
from analysis.notes import Note
from analysis.techniques.baselines import arguments
from results.acts_from import RAMP, SCHEDULE

TESTED_FROM = 0.5
"""The least share of best trials in which a technique must have acted for it to be tested."""


@dataclass(frozen=True, kw_only=True)
class Active:
    """In how many of a curve's best trials everything acted that it changes in its baseline."""

    share: float | None
    """Of the points that reached the target, 0 to 1; None where none did."""
    late: str | None = None
    """The part that acted in the fewest; None where all acted in all of them."""
    of: int = 0
    """Points that reached the target."""

    @property
    def tested(self) -> bool:
        """Whether the curve says something of what it changes: at least half of it does."""
        return self.share is None or self.share >= TESTED_FROM

    @property
    def text(self) -> str:
        """``67%``, and ``0%: not tested`` under a half."""
        if self.share is None:
            return "unknown"
        return f"{self.share:.0%}" + ("" if self.tested else ": not tested")

    @property
    def note(self) -> Note | None:
        """On what began too late; None where nothing did."""
        if self.late is None or self.share is None:
            return None
        part = {SCHEDULE: "the decay", RAMP: "the ramp"}.get(self.late, self.late)
        return Note("late", part=part, n=round(self.share * self.of), of=self.of)


def active(curve: Curve, base: Curve, factors: Collection[str] = ()) -> Active:
    """How often all acted that ``curve`` changes in ``base``: techniques, schedule and ramp.

    The best trial of a batch size is counted where it took more steps than there were updates
    before the last of these began. What acts from the first step on acts in every trial.
    """
    changed = _changed(curve, base, factors)
    points = [point for point in curve.points if point.steps is not None]
    acted = Counter[str]()
    whole = 0
    for point in points:
        steps = point.steps if point.minimum is None else point.minimum
        idle = [
            part
            for part, begin in point.acts_from.items()
            if part in changed and steps is not None and steps <= begin
        ]
        whole += not idle
        acted.update(idle)
    late = max(acted, key=lambda part: acted[part], default=None)
    share = whole / len(points) if points else None
    return Active(share=share, late=late, of=len(points))


def _changed(curve: Curve, base: Curve, factors: Collection[str]) -> set[str]:
    own, other = arguments(curve, factors), arguments(base, factors)
    changed = {name for name, value in own.items() if other.get(name) != value}
    if curve.group.get(SCHEDULE) != base.group.get(SCHEDULE):
        changed.add(SCHEDULE)
    return changed
