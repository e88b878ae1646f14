"""The search table of a study: quasi-random points, drawn in an order that never changes.

Scrambled Sobol points (Bousquet et al. 2017 recommend such sequences for tuning), one coordinate a
tuned metaparameter **in alphabetical order of their names**. The scrambling is seeded by the study,
so every study has a block of its own. Points are drawn in blocks of powers of two, each continuing
the last: the first n rows are the same however many are drawn, and adding batch sizes, trials or
keys elsewhere in the file changes none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.plan import Value
from experiments.space import Dimension

_FIRST_BLOCK = 64


class Table:
    """Rows of one study's search, drawn when first asked for."""

    def __init__(self, space: Mapping[str, Dimension], seed: int) -> None:
        """``seed``: 63 bits, the study's own."""
        self.space = dict(sorted(space.items()))
        self._rows: list[dict[str, Value]] = []
        self._seed = seed
        self._sobol: object | None = None

    def rows(self, start: int, stop: int) -> list[dict[str, Value]]:
        """Rows ``start`` … ``stop - 1``: one value a tuned metaparameter."""
        while len(self._rows) < stop:
            self._extend()
        return [dict(row) for row in self._rows[start:stop]]

    def _extend(self) -> None:
        """Draw as many rows as there are (a power of two), so that all stay balanced."""
        count = max(_FIRST_BLOCK, len(self._rows))
        if not self.space:
            self._rows += [{} for _ in range(count)]
            return
        points = self._engine().random(count)
        columns = [
            [dimension.value(u) for u in points[:, i].tolist()]
            for i, dimension in enumerate(self.space.values())
        ]
        self._rows += [
            dict(zip(self.space, row, strict=True)) for row in zip(*columns, strict=True)
        ]

    def _engine(self):  # type: ignore[no-untyped-def]
        from scipy.stats.qmc import Sobol

        if self._sobol is None:
            draw = np.random.Generator(np.random.PCG64(self._seed))
            self._sobol = Sobol(len(self.space), scramble=True, seed=draw)
        return self._sobol


def table(space: Mapping[str, Dimension], seed: int, n: int) -> list[dict[str, Value]]:
    """The first ``n`` rows of the table of ``space`` with ``seed``."""
    return Table(space, seed).rows(0, n)
