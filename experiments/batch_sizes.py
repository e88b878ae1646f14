"""The batch size at each step of a study's trials: one for all steps, or growing at given ones."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from results.batch_phases import examples


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """Phases of one batch size each. All trials of a study have the same."""

    batch_size: int
    """The study's: that of the first step."""
    starts: tuple[int, ...] = (0,)
    """The first step of each phase, ascending from 0."""
    sizes: tuple[int, ...]
    """Examples a step in each phase."""
    budget_steps: int | None = None
    """Steps of the budget's examples; ``None``: not counted."""
    schedule_steps: int | None = None
    """The budget in steps of ``batch_size`` examples, of which lengths are shares."""
    replaces_decay: bool = False
    """Whether the batch grows where the schedule would decay the learning rate."""
    learning_rate: str = "none"
    """The rule by which the learning rate grows with the batch: ``none``, ``sqrt``, ``linear``."""

    @classmethod
    def constant(cls, batch_size: int) -> BatchSizes:
        """One batch size for all steps."""
        return cls(batch_size=batch_size, sizes=(batch_size,))

    @classmethod
    def growing(
        cls,
        batch_size: int,
        budget_steps: int,
        changes: Sequence[tuple[int, int]],
        *,
        replaces_decay: bool = False,
        learning_rate: str = "none",
    ) -> BatchSizes:
        """Batch sizes that change once so many examples were seen.

        A phase ends with the first step that has seen them. The budget's examples end the last
        phase, with the last step that still fits in.

        Args:
            budget_steps: the budget, in steps of ``batch_size`` examples.
            changes: ascending (examples seen, in steps of ``batch_size``; the batch size from then
                on).
        """
        starts, sizes, seen, end = [0], [batch_size], 0, budget_steps * batch_size
        for at, size in changes:
            steps = max(0, -(-(at * batch_size - seen) // sizes[-1]))
            if seen + steps * sizes[-1] >= end:
                break
            seen += steps * sizes[-1]
            if steps:
                starts.append(starts[-1] + steps)
                sizes.append(size)
            else:
                sizes[-1] = size
        last = (end - seen) // sizes[-1]
        total = starts[-1] + last
        if not last and len(starts) > 1:
            starts, sizes = starts[:-1], sizes[:-1]
        return cls(
            batch_size=batch_size,
            starts=tuple(starts),
            sizes=tuple(sizes),
            budget_steps=max(1, total),
            schedule_steps=budget_steps,
            replaces_decay=replaces_decay,
            learning_rate=learning_rate,
        )

    @property
    def largest(self) -> int:
        """The most examples of a step."""
        return max(self.sizes)

    def size(self, step: int) -> int:
        """Examples of the step that makes ``step`` into ``step + 1``."""
        return self.sizes[self._phase(step)]

    def steps_to_change(self, step: int) -> int | None:
        """Steps from ``step`` to the next whose batch size may differ; ``None``: there is none."""
        phase = self._phase(step) + 1
        return self.starts[phase] - step if phase < len(self.starts) else None

    def examples(self, step: int) -> int:
        """Examples seen before ``step``."""
        return int(examples(self.starts, self.sizes, step))

    def mean_size(self, steps: int) -> float:
        """Examples a step, on the average of the first ``steps``."""
        return self.examples(steps) / steps if len(self.sizes) > 1 else self.sizes[0]

    def schedule_step(self, step: int) -> int | float:
        """Where the learning-rate schedule is at ``step``: the examples seen, in steps of
        ``batch_size``; a whole number is an ``int``."""
        if len(self.sizes) == 1:
            return step
        whole, rest = divmod(self.examples(step), self.batch_size)
        return whole + rest / self.batch_size if rest else whole

    def pieces(self, step: int, steps: int) -> list[range]:
        """The next ``steps`` steps from ``step`` on, divided where the batch size may change."""
        stop = step + steps
        borders = [step, *(start for start in self.starts if step < start < stop), stop]
        return [range(low, high) for low, high in itertools.pairwise(borders)]

    def _phase(self, step: int) -> int:
        return bisect.bisect_right(self.starts, step) - 1
