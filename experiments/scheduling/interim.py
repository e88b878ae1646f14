"""When a sweep stops itself: its trials are analysed after each round that all of its studies have
behind them, and the next round is drawn only if these are not enough.

Each analysis is made once, of the trials of its rounds alone: given again, a sweep decides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from experiments.plan import Study
from experiments.scheduling import rounds


class Searching(Protocol):
    """The part of ``StudyState`` that is used."""

    study: Study

    def has_behind(self, number: int) -> bool: ...


class InterimAnalyses:
    """The interim analyses of a sweep.

    Args:
        states: all studies; each round of them draws trials until it has its goal.
        enough: whether the trials that are drawn so far are enough, after the round of this number.
    """

    def __init__(self, states: Sequence[Searching], enough: Callable[[int], bool]) -> None:
        self._states, self._enough = list(states), enough
        self._open = list(states)
        self._last = max((len(rounds.goals(s.study.trials)) for s in states), default=1) - 1
        self.made = 0
        """How many: one after each round but the last."""
        self.stopped = False

    def advance(self) -> int:
        """Make those that can be made by now; how many were made in all."""
        while not self.over:
            while self._open and self._open[-1].has_behind(self.made):
                self._open.pop()
            if self._open:
                break
            self.stopped = self._enough(self.made)
            self.made, self._open = self.made + 1, list(self._states)
        return self.made

    @property
    def over(self) -> bool:
        """Whether there will be no further one."""
        return self.stopped or self.made >= self._last

    def opens(self, number: int) -> bool:
        """Whether round ``number`` may be drawn."""
        return number < self.made or (number == self.made and not self.stopped)
