"""A method of search: how it makes a study's table, whose rows are drawn when first needed."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from experiments.search.space import Dimension, Value

Space = Mapping[str, Dimension]
Row = dict[str, Value]
"""A value for each tuned metaparameter."""


class Table(abc.ABC):
    """Rows of one study's search. A row never changes, whatever other rows are drawn.

    A subclass with a ``name`` in a file of this folder is a method of search.
    """

    name: ClassVar[str]
    """The method in experiment files."""
    not_enlargeable: ClassVar[str] = ""
    """Why it cannot fill an enlargement as densely as the rest of the space; empty if it can."""
    alike: ClassVar[bool] = True
    """Whether its trials are drawn alike, so that any ten of them are equivalent to any other
    ten."""
    rounds_up: ClassVar[bool] = False
    """Whether its size follows from the trials wanted, and all of it is trained."""
    finite: ClassVar[bool] = False
    """Whether the trials wanted are all its rows, so that none can replace an infeasible one."""

    def __init__(
        self, space: Space, seed: int, trials: int, points: Sequence[Mapping[str, Value]]
    ) -> None:
        """
        Args:
            seed: 63 bits, derived for the study.
            trials: the number of trials wanted.
            points: rows chosen by hand, for method ``points``.
        """
        self.space = dict(sorted(space.items()))
        self.seed, self.trials, self.points = seed, trials, points

    @property
    def size(self) -> int | None:
        """How many rows there are; ``None``: without end."""
        return None

    @abc.abstractmethod
    def rows(self, start: int, stop: int) -> list[Row]:
        """Rows ``start`` … ``stop - 1``, fewer beyond ``size``."""
