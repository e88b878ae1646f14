"""What a method of search is to a study: rows of a table, drawn when first asked for."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from experiments.plan import Value

Row = dict[str, Value]
"""One value a tuned metaparameter."""

History = Sequence[int | None]
"""How the first rows of a table came out: steps to target, ``None``: worse than what is known."""


class Table(abc.ABC):
    """Rows of one study's search. A row never changes, whatever other rows are asked for."""

    size: int | None = None
    """How many rows there are; ``None``: no end of them."""
    block: int | None = None
    """Where rows depend on earlier ones: on all those before their block of so many rows."""

    @abc.abstractmethod
    def rows(self, start: int, stop: int, history: History = ()) -> list[Row]:
        """Rows ``start`` … ``stop - 1``, fewer beyond ``size``.

        Args:
            history: of the rows before ``start``; for methods that learn from it.
        """
