"""One trial's course through a pack: when it looks next, what it reached, its walk back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from experiments.encoding import from_fields, to_fields
from experiments.engines.base import gather
from experiments.plan import Outcome


@dataclass(frozen=True, kw_only=True)
class BracketRefinement:
    """A trial that has reached its target, back in the bracket of its hit, looking closer."""

    steps: tuple[int, ...]
    """Finer looks that are left, all of them before the hit."""
    hit: int
    """The step of the hit on the evaluation grid."""
    miss: int
    """The last finer look that missed."""
    ended: Outcome | None
    """How the trial ended at its hit, where it stops there."""
    after: Any
    """What the engine holds of it at the hit, where it goes on from there."""


@dataclass(kw_only=True)
class TrialProgress:
    """Where one trial stands among its looks."""

    next: int
    """The step of its next look."""
    last: int = 0
    """The step of its last one."""
    hit: tuple[int, int] | None = None
    """Steps to target, and the last miss before."""
    refined: tuple[int, int] | None = None
    """The same on the finer grid."""
    held: Any = None
    """What the engine holds of it at the last look, where its bracket may be walked."""
    walk: BracketRefinement | None = None

    def on(self, device: torch.device) -> TrialProgress:
        """A copy with what is held on ``device``."""
        walk = self.walk
        if walk is not None:
            walk = replace(walk, after=gather(walk.after, device))
        return replace(self, held=gather(self.held, device), walk=walk)

    def to_plain(self) -> dict[str, Any]:
        """What ``encode`` takes, on the CPU."""
        content = to_fields(self.on(torch.device("cpu")))
        if self.walk is not None:
            ended = None if self.walk.ended is None else to_fields(self.walk.ended)
            content["walk"] = {**to_fields(content["walk"]), "ended": ended}
        return content

    @classmethod
    def from_plain(cls, content: Any) -> TrialProgress:
        """
        Raises:
            MalformedError: ``to_plain`` did not write it.
        """
        if isinstance(content, dict) and isinstance(content.get("walk"), dict):
            walk = dict(content["walk"])
            if isinstance(walk.get("ended"), dict):
                walk["ended"] = from_fields(Outcome, walk["ended"])
            content = {**content, "walk": from_fields(BracketRefinement, walk)}
        return from_fields(cls, content)
