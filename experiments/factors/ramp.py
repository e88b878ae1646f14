"""Batch-size schedules: ``batch_size: {from: 16..64, ramp: …}`` in the grid of an experiment.

| ramp | the batch size |
|---|---|
| ``{at: [[0.25, 2], [0.5, 4]]}`` | so many times the study's from these shares of the budget on |
| ``{double_at: [0.25, 0.5]}`` | doubles at each of these shares |
| ``{instead_of_decay: 8}`` | grows, up to 8 times, where the schedule would decay the rate |

Beside the first two ``learning_rate: sqrt`` multiplies the learning rate by the root of what the
batch has grown by, ``linear`` by that itself; without, it stays that of the schedule.

The study's batch size is that of the first step. Its budget is so many *examples*, whatever the
ramp, and its schedule runs in examples: the learning rate after so many of them is that of the
study without the ramp. *Instead of decaying the rate* (Smith et al. 2018, "Don't decay the learning
rate, increase the batch size", arXiv:1711.00489): where the schedule's factor is f, the batch is
g = ⌊1/f⌋ times as large, g at most the limit, and the rate's factor is f g, so that rate over batch
size is that of the schedule at every step; of a decay in steps of 1/g the rate does not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from experiments.batch_sizes import BatchSizes
from experiments.errors import ExperimentError
from experiments.factors.rule import rate_factor
from experiments.factors.target_share import TargetShare, mentions
from experiments.schedules import Schedule
from experiments.search.space import Value
from experiments.typed import Count, Keys, checked
from results.counts import count

_EXAMPLE = "for example: ramp: {at: [[0.25, 2], [0.5, 4]]}, or {double_at: [0.25, 0.5]}"
_HINTS = {
    **dict.fromkeys(("", "at", "double_at"), _EXAMPLE),
    "instead_of_decay": "how many times the batch may grow, for example 8",
    "learning_rate": "with the batch size: sqrt, linear or none",
}
_SAMPLES = 2048
"""Steps at which a schedule is compared with the one before, to see that it never rises."""
_ROUNDING = 1e-9


_Changes = Annotated[list[Any], Field(min_length=1, max_length=100)]


class _Written(Keys):
    at: _Changes = Field(default_factory=list)
    double_at: _Changes = Field(default_factory=list)
    instead_of_decay: Annotated[Count, Field(ge=2, le=1024)] = 0
    learning_rate: Literal["none", "sqrt", "linear"] = "none"


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """A batch-size schedule as an experiment writes it."""

    changes: tuple[tuple[float, float], ...] = ()
    """(share of the budget, factor of the study's batch size from there on), ascending in both."""
    instead_of_decay: int | None = None
    """How many times the batch may grow where the schedule would decay the rate."""
    learning_rate: str = "none"
    """The rule by which the learning rate grows with the batch."""

    @classmethod
    def parse(cls, value: Any) -> Ramp | None:
        """Read a ramp; ``None`` for ``none``, and for one in which the batch size never changes.

        Raises:
            ExperimentError: it is no ramp, or not increasing.
        """
        if value == "none":
            return None
        written = checked(_Written, value, _HINTS)
        kinds = written.model_fields_set - {"learning_rate"}
        if len(kinds) != 1:
            message = f"ramp {value!r} is not one of at, double_at and instead_of_decay"
            raise ExperimentError(message, hint=_EXAMPLE)
        (kind,) = kinds
        if kind == "instead_of_decay":
            if written.learning_rate != "none":
                message = "ramp instead_of_decay: the schedule gives the learning rate"
                raise ExperimentError(message, hint="leave learning_rate out of the ramp")
            return cls(instead_of_decay=written.instead_of_decay)
        doubled = [(share, 2 ** (i + 1)) for i, share in enumerate(written.double_at)]
        changes = _checked(kind, written.at or doubled)
        if 0 < sum(mentions(share) for share, _ in changes) < len(changes):
            message = f"ramp {kind} has shares of the budget and of the target"
            raise ExperimentError(message, hint="give all of one kind")
        steps = itertools.pairwise([(0.0, 1.0), *changes])
        kept = [after for before, after in steps if after[1] != before[1]]
        return cls(changes=tuple(kept), learning_rate=written.learning_rate) if kept else None

    def __str__(self) -> str:
        """As results record it, in the ``technique``."""
        if self.instead_of_decay is not None:
            return f"up to {self.instead_of_decay}x instead of decay"
        text = ", ".join(f"{factor!r}x at {share!r}" for share, factor in self.changes)
        rule = self.learning_rate
        return text if rule == "none" else f"{text}, learning rate {rule}"

    def resolve(
        self,
        batch_size: int,
        budget_steps: int,
        *,
        examples: int | None,
        schedule: Schedule,
        arguments: Mapping[str, Value],
        tuned: Sequence[str],
    ) -> BatchSizes:
        """The batch size at each step of a study.

        Args:
            batch_size: the study's.
            budget_steps: its budget, in steps of that size.
            examples: of the training set; ``None`` if it has no end, or is read in sequence.
            arguments: the schedule's, resolved.
            tuned: arguments of the schedule that the search tunes.

        Raises:
            ExperimentError: a batch size that is not whole or is beyond the training set; a
                schedule that is tuned, does not decay or rises.
        """
        if examples is None:
            message = "ramp: the training set is read in sequence, or has no end"
            hint = "a batch size grows over a training set of known size alone"
            raise ExperimentError(message, hint=hint)
        if self.instead_of_decay is not None:
            changes = self._by_decay(batch_size, budget_steps, schedule, arguments, tuned)
        else:
            changes = [
                (max(1, round(share * budget_steps)), _times(batch_size, factor))
                for share, factor in self.changes
            ]
        for _, size in changes:
            if size > examples:
                raise ExperimentError(
                    f"ramp: batch size {size} is over the training set "
                    f"({count(examples, 'example')}), from batch size {batch_size}",
                    hint="end the ramp earlier, or leave that batch size out",
                )
        return BatchSizes.growing(
            batch_size,
            budget_steps,
            changes,
            replaces_decay=self.instead_of_decay is not None,
            learning_rate=self.learning_rate,
        )

    def _by_decay(
        self,
        batch_size: int,
        budget_steps: int,
        schedule: Schedule,
        arguments: Mapping[str, Value],
        tuned: Sequence[str],
    ) -> list[tuple[int, int]]:
        """Where the batch grows instead, and its size from there on."""
        if tuned:
            raise ExperimentError(
                f"ramp instead_of_decay: {' and '.join(tuned)} of schedule {schedule.label} is "
                "tuned, but all trials of a study have one ramp",
                hint=f"fix it: search: {{{tuned[0]}: …}}",
            )
        factor = schedule.factor_of(arguments)
        warmup, last = int(arguments.get("warmup_steps", 0)), budget_steps - 1
        _check_decays(schedule, factor, warmup, last)
        most = self.instead_of_decay or 1

        def growth(step: int) -> int:
            f = factor(step)
            return most if f * most <= 1 else max(1, math.floor((1 + _ROUNDING) / f))

        changes: list[tuple[int, int]] = []
        step = warmup
        while step < last and growth(step) < growth(last):
            low, high = step, last  # growth(low) < growth(high)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if growth(middle) == growth(step) else (low, middle)
            changes.append((high, batch_size * growth(high)))
            step = high
        return changes


def _check_decays(
    schedule: Schedule, factor: Callable[[int], float], warmup: int, last: int
) -> None:
    """
    Raises:
        ExperimentError: the factor rises after warmup, or never falls.
    """
    stride = max(1, (last - warmup) // _SAMPLES)
    factors = [factor(step) for step in range(warmup, last + 1, stride)]
    if any(after > before + _ROUNDING for before, after in itertools.pairwise(factors)):
        message = f"ramp instead_of_decay: schedule {schedule.label} raises the rate again"
        raise ExperimentError(message, hint="choose a schedule that only decays: linear, step …")
    if not factors or factors[-1] >= factors[0]:
        message = f"ramp instead_of_decay: schedule {schedule.label} does not decay"
        raise ExperimentError(message, hint="schedule: step, or cosine, linear, exponential …")


def _checked(kind: str, pairs: Sequence[Any]) -> list[tuple[float, float]]:
    """Pairs of a share and a factor, both ascending."""
    checked: list[tuple[float, float]] = []
    for pair in pairs:
        if isinstance(pair, Sequence) and not isinstance(pair, str):
            pair = [TargetShare.parse(pair[0]), *pair[1:]] if pair else pair
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(map(_is_number, pair)):
            message = f"ramp {kind}: {pair!r} is not a share of the budget and a factor"
            raise ExperimentError(message, hint=_EXAMPLE)
        share, factor = (_short(x) for x in pair)
        if not 0 < share < 1:
            message = f"ramp {kind}: {share} is not a share of the budget, over 0 and below 1"
            raise ExperimentError(message, hint=_EXAMPLE)
        last = checked[-1] if checked else (0, 1)
        for what, before, after, rises in (
            ("shares", last[0], share, share > last[0]),
            ("batch size", last[1], factor, factor >= last[1]),
        ):
            if not rises:
                raise ExperimentError(
                    f"ramp {kind} is not increasing: {what} {before} comes before {after}",
                    hint="factors are of the first batch size, and a batch only grows",
                )
        checked.append((share, factor))
    return checked


def _short(x: float) -> float:
    return x if mentions(x) else int(x) if float(x).is_integer() else float(x)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _times(batch_size: int, factor: float) -> int:
    size = batch_size * factor
    if abs(size - round(size)) > _ROUNDING * size:
        message = f"ramp: {factor} times batch size {batch_size} is not a whole number"
        raise ExperimentError(message, hint="choose another factor, or leave that batch size out")
    return round(size)


class RampedSchedule(Schedule):
    """A schedule that runs in examples, at the batch sizes of a ramp."""

    def __init__(self, schedule: Schedule, sizes: BatchSizes) -> None:
        self.schedule, self.sizes = schedule, sizes
        self.name, self.display_name = schedule.name, schedule.display_name

    def factor_of(self, metaparameters: Mapping[str, Value]) -> Callable[[int], float]:
        # It gets a fraction where the examples seen are no multiple of the study's batch size.
        schedule: Callable[[Any], float] = self.schedule.factor_of(metaparameters)
        sizes = self.sizes

        def factor(step: int) -> float:
            growth = sizes.size(step) / sizes.batch_size
            by = growth if sizes.replaces_decay else rate_factor(sizes.learning_rate, growth)
            return by * schedule(sizes.schedule_step(step))

        return factor

    def is_constant(self, metaparameters: Mapping[str, Value]) -> bool:
        grows = self.sizes.learning_rate != "none"
        return not grows and self.schedule.is_constant(metaparameters)


def ramped(schedule: Schedule, sizes: BatchSizes | None) -> Schedule:
    """``schedule`` at these batch sizes; itself where there is no ramp."""
    return schedule if sizes is None else RampedSchedule(schedule, sizes)
