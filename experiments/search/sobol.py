"""Quasi-random points, drawn in an order that never changes.

Scrambled Sobol points (Bousquet et al. 2017 recommend such sequences for tuning), one coordinate a
tuned metaparameter **in alphabetical order of their names**. The scrambling is seeded by the study,
so every study has a block of its own. Points are drawn in blocks of powers of two, each continuing
the last: the first n rows are the same however many are drawn, and adding batch sizes, trials or
keys elsewhere in the file changes none.
"""

from __future__ import annotations

import functools

import numpy as np

from experiments.search.base import Row, Table

_FIRST_BLOCK = 64


class Sobol(Table):
    """The points of one scrambled sequence."""

    name = "sobol"

    def rows(self, start: int, stop: int) -> list[Row]:
        if not self.space:
            return [{} for _ in range(start, stop)]
        while len(self._rows) < stop:
            # As many rows as there are (a power of two), so that all stay balanced.
            for point in self._engine.random(max(_FIRST_BLOCK, len(self._rows))).tolist():
                pairs = zip(self.space.items(), point, strict=True)
                self._rows.append({name: dimension.value(u) for (name, dimension), u in pairs})
        return [dict(row) for row in self._rows[start:stop]]

    @functools.cached_property
    def _rows(self) -> list[Row]:
        """The rows drawn so far."""
        return []

    @functools.cached_property
    def _engine(self):  # type: ignore[no-untyped-def]
        from scipy.stats import qmc

        generator = np.random.Generator(np.random.PCG64(self.seed))
        engine = qmc.Sobol(len(self.space), scramble=True, seed=generator)
        # SciPy ignores an interrupt while it reads its direction numbers, once a process, and
        # leaves zeros: all points would be one. Right ones have a point in each equal interval.
        intervals = np.floor(engine.random(_FIRST_BLOCK) * _FIRST_BLOCK).astype(int)
        if not np.array_equal(np.sort(intervals.T), [range(_FIRST_BLOCK)] * len(self.space)):
            raise KeyboardInterrupt
        return engine.reset()
