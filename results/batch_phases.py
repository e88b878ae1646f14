"""Batch sizes that grow during training, as the column ``batch_sizes`` records them.

The batch size of a study, by which curves are drawn, is that of the first step. Examples of a
number of steps follow from the phases alone, so that they are true for any step: one that was
recorded, a target that was set later, an order statistic between two trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.errors import ResultsError
from results.storage.values import mapping


@dataclass(frozen=True, kw_only=True)
class BatchPhases:
    """Phases of one batch size each; all trials of a study have the same."""

    starts: tuple[int, ...]
    """The first step of each phase, ascending from 0."""
    sizes: tuple[int, ...]
    """Examples a step in each phase."""
    schedule_steps: int
    """The budget in steps of the first batch size, of which lengths are shares."""

    @classmethod
    def of(cls, cell: Any) -> BatchPhases | None:
        """Read a cell of the column; ``None`` for a null: one batch size for all steps.

        Raises:
            ResultsError: the cell holds no phases.
        """
        if isinstance(cell, str):
            cell = mapping(cell, "batch_sizes") if cell else None
        if not isinstance(cell, Mapping):
            return None
        try:
            starts, sizes = (tuple(int(n) for n in cell[name]) for name in ("starts", "sizes"))
            phases = cls(starts=starts, sizes=sizes, schedule_steps=int(cell["schedule_steps"]))
        except (KeyError, TypeError, ValueError):
            phases = None
        if phases is None or not starts or starts[0] != 0 or len(starts) != len(sizes):
            raise ResultsError(
                f"batch_sizes {cell!r} are no phases",
                hint='for example: {"starts": [0, 50], "sizes": [16, 32], "schedule_steps": 200}',
            )
        return phases

    def examples(self, steps: float) -> float:
        """Examples seen in the first ``steps``, which need not be whole."""
        return examples(self.starts, self.sizes, steps)

    def mean_size(self, steps: float) -> float:
        """Examples a step, on the average of the first ``steps``."""
        return self.examples(steps) / steps if steps else float(self.sizes[0])


def examples(starts: Sequence[int], sizes: Sequence[int], steps: float) -> Any:
    """Examples seen in the first ``steps``, of phases with these first steps and batch sizes; whole
    for a whole number of steps."""
    ends = (*starts[1:], steps)
    return sum(
        size * max(0, min(end, steps) - start)
        for start, end, size in zip(starts, ends, sizes, strict=True)
    )
