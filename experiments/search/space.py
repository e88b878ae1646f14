"""One dimension of a search space: a scale that maps the unit interval to values, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from experiments.errors import ExperimentError, nearest
from experiments.search.domains import Domain

Value = float | int | str | bool
"""A metaparameter's."""
Side = Literal["low", "high"]
Scale = Literal["linear", "log", "reverse_log", "integer", "discrete"]
SCALES: tuple[Scale, ...] = ("linear", "log", "reverse_log", "integer", "discrete")
_FIGURES = 9
_LEAST_GROWTH = 0.01
"""A range that can grow by less than this share of itself is at its natural end."""
_NEAR = 1e-6
"""How near to an open end of its domain a range may come, as a share of the way to it."""


def rounded(x: float) -> float:
    """To nine significant figures: the last bits of ``log`` and ``exp`` differ between machines,
    and a trial's identity must not."""
    return float(f"{x:.{_FIGURES - 1}e}")


def complement(x: float) -> float:
    """1 - x, where x has nine significant figures."""
    return round(1 - rounded(x), 15)


_ANY = Domain()


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A tuned metaparameter.

    ``linear``, ``log`` and ``integer`` are uniform in x, log x and the whole numbers from
    ``bounds[0]`` to ``bounds[1]`` (both included); ``reverse_log`` is uniform in log(1 - x), for
    what approaches 1; ``discrete`` draws from ``choices`` alike.
    """

    scale: Scale
    bounds: tuple[float, float] = (0.0, 1.0)
    choices: tuple[Value, ...] = ()

    @classmethod
    def parse(cls, scale: str, values: Any) -> Dimension:
        """A dimension as an experiment file writes it: ``{log: [1e-4, 10]}``.

        Raises:
            ExperimentError: an unknown scale, or a range that is empty, reversed or out of it.
        """
        if scale not in SCALES:
            raise ExperimentError(f"unknown scale {scale!r}", hint=nearest(str(scale), SCALES))
        if scale == "discrete":
            return cls(scale="discrete", choices=_choices(values))
        low, high = _bounds(scale, values)
        dimension = cls(scale=scale, bounds=(low, high))
        if not math.isfinite(dimension.extent):
            raise ExperimentError(f"{scale}: {list(values)} is wider than a float can be")
        return dimension

    def value(self, u: float) -> Value:
        """The value at ``u`` in [0, 1); within the bounds, whatever the rounding."""
        low, high = self.bounds
        if self.scale == "discrete":
            return self.choices[min(int(u * len(self.choices)), len(self.choices) - 1)]
        if self.scale == "integer":
            return int(min(low + math.floor(u * (high - low + 1)), high))
        if self.scale == "linear":
            x = rounded(low + u * (high - low))
        elif self.scale == "log":
            x = rounded(low * math.exp(u * math.log(high / low)))
        else:  # from 1 - low down to 1 - high, evenly in its logarithm
            x = complement((1 - low) * math.exp(u * math.log((1 - high) / (1 - low))))
        return min(max(x, low), high)

    def unit(self, value: Value) -> float:
        """Where ``value`` lies: 0 at the lower bound, 1 at the upper one, outside it beyond.

        Of a whole number or a choice, the middle of its share.

        Raises:
            ValueError: not one of the choices, or a value that the scale cannot hold.
        """
        if self.scale == "discrete":
            return (self.choices.index(value) + 0.5) / len(self.choices)
        x, (low, high) = float(value), self.bounds
        if self.scale == "integer":
            return (x - low + 0.5) / (high - low + 1)
        if self.scale == "linear":
            return (x - low) / (high - low)
        if self.scale == "log":
            return math.log(x / low) / math.log(high / low)
        return math.log((1 - x) / (1 - low)) / math.log((1 - high) / (1 - low))

    def levels(self, count: int) -> list[Value]:
        """``count`` values, even in its scale from end to end; of one, the middle.

        Of choices all of them, and of whole numbers at most as many as there are.
        """
        low, high = self.bounds
        if self.scale == "discrete":
            return list(self.choices)
        if count == 1:
            return [self.value(0.5)]
        if self.scale == "integer":
            count = min(count, int(self.extent))
            steps = max(count - 1, 1)
            return [int(low + (2 * i * (high - low) + steps) // (2 * steps)) for i in range(count)]
        return [self.value(i / (count - 1)) for i in range(count)]

    @property
    def extent(self) -> float:
        """Its size in its own scale; the density of a search is the number of points a unit."""
        low, high = self.bounds
        if self.scale == "discrete":
            return len(self.choices)
        if self.scale == "integer":
            return high - low + 1
        if self.scale == "linear":
            return high - low
        return math.log(high / low) if self.scale == "log" else math.log((1 - low) / (1 - high))

    def holds(self, value: Value) -> bool:
        """Whether ``value`` lies within the bounds, or is one of the choices."""
        if self.scale == "discrete":
            return value in self.choices
        return self.bounds[0] <= float(value) <= self.bounds[1]

    def extended(self, side: Side, domain: Domain = _ANY) -> Dimension | None:
        """The dimension enlarged on one side by its own size, in its own scale.

        Of a logarithmic range as many decades again, of a linear one its width, of whole numbers
        as many. Clipped to ``domain``. ``None``: there is nothing beyond, as of choices.
        """
        if self.scale == "discrete":
            return None
        low, high = self.bounds
        end = _beyond(self.scale, low, high, side)
        if side == "low" and end not in domain:
            end = domain.low + (_NEAR * (low - domain.low) if domain.above else 0)
        elif side == "high" and end not in domain:
            end = domain.high - (0 if domain.closed else _NEAR * (domain.high - low))
        if not math.isfinite(end) or (self.scale == "log" and end <= 0):
            return None
        if self.scale == "reverse_log" and end >= 1:
            return None
        bounds = (end, high) if side == "low" else (low, end)
        wider = Dimension(scale=self.scale, bounds=bounds)
        return wider if wider.extent >= (1 + _LEAST_GROWTH) * self.extent else None

    def divided(self, by: float) -> Dimension:
        """The range, or the choices, with each value divided."""
        scale: Scale = "linear" if self.scale == "integer" else self.scale
        low, high = (end / by for end in self.bounds)
        choices = tuple(float(value) / by for value in self.choices)
        return Dimension(scale=scale, bounds=(low, high), choices=choices)

    def notation(self) -> dict[str, list[Value]]:
        """As an experiment file writes it; ``parse`` gives the same dimension back."""
        if self.scale == "discrete":
            return {self.scale: list(self.choices)}
        return {self.scale: list(self.bounds)}


def _beyond(scale: Scale, low: float, high: float, side: Side) -> float:
    """The new end when the range is doubled towards it; perhaps not finite."""
    down = side == "low"
    if scale == "integer":
        return int(low - (high - low + 1) if down else high + (high - low + 1))
    if scale == "linear":
        end = low - (high - low) if down else high + (high - low)
    elif scale == "log":
        end = low * (low / high) if down else high * (high / low)
    else:
        ratio = (1 - low) / (1 - high)
        end = 1 - ((1 - low) * ratio if down else (1 - high) / ratio)
    return float(f"{end:.14e}")  # rounded: 0.9, not 0.9000000000000001


_LARGEST = 2**63 - 1

_EXAMPLE = {
    "linear": "{linear: [0, 1]}",
    "log": "{log: [1e-4, 10]}",
    "reverse_log": "{reverse_log: [0.9, 0.999]}",
    "integer": "{integer: [1, 10]}",
    "discrete": "{discrete: [0, 0.01, 0.1]}",
}


def _choices(values: Any) -> tuple[Value, ...]:
    if not isinstance(values, (list, tuple)) or not values:
        hint = f"write {_EXAMPLE['discrete']}"
        raise ExperimentError(f"discrete: {values!r} is not a list of choices", hint=hint)
    for value in values:
        if not isinstance(value, (str, bool, int, float)):
            raise ExperimentError(f"discrete: {value!r} is neither a number nor a word")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExperimentError(f"discrete: {value!r} is not a finite number")
    if len(set(values)) < len(values):
        raise ExperimentError(f"discrete: {list(values)} holds a choice twice")
    return tuple(values)


def _bounds(scale: str, values: Any) -> tuple[float, float]:
    listed = values if isinstance(values, (list, tuple)) else ()
    numbers = [v for v in listed if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(listed) != 2 or len(numbers) != 2:
        hint = f"write {_EXAMPLE[scale]}"
        raise ExperimentError(f"{scale}: {values!r} is not [low, high]", hint=hint)
    low, high = numbers
    if not all(isinstance(number, int) or math.isfinite(number) for number in numbers):
        raise ExperimentError(f"{scale}: {list(values)} is not finite")
    if scale == "integer" and max(abs(low), abs(high)) > _LARGEST:
        raise ExperimentError(f"integer: {list(values)} is beyond 64 bits")
    if scale == "integer" and not (float(low).is_integer() and float(high).is_integer()):
        message = f"integer: {list(values)} are not whole numbers"
        raise ExperimentError(message, hint="or use linear")
    if low > high:
        message = f"{scale}: the range {list(values)} is reversed"
        raise ExperimentError(message, hint="write the lower first")
    if low == high and scale != "integer":
        raise ExperimentError(
            f"{scale}: the range {list(values)} is empty",
            hint=f"a fixed value is written plainly: {low}",
        )
    if scale == "log" and low <= 0:
        raise ExperimentError(
            f"log: {list(values)} reaches {low}, which has no logarithm",
            hint="start above 0, or use linear",
        )
    if scale == "reverse_log" and high >= 1:
        message = f"reverse_log: {list(values)} reaches {high}: it is uniform in log(1 - x)"
        raise ExperimentError(message, hint="end below 1, for example at 0.999")
    return (int(low), int(high)) if scale == "integer" else (float(low), float(high))
