"""Amounts in an experiment file: batch sizes, ``8..4096``; budgets, ``50 epochs + 2000 steps``.

Both may be in tokens: ``4096..262144 tokens``, ``2e7 tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from experiments.errors import ExperimentError, below
from results.counts import count, plural

FULL = "full"
"""The whole training set as one batch."""


@dataclass(frozen=True)
class SizeInUnit:
    """A batch size in ``tokens`` or ``sequences``, before the workload gives its examples."""

    amount: int
    unit: str
    position: int = field(default=0, compare=False)
    """Which item of a list it is from, for errors."""

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}"

    def examples(self, tokens_per_example: int | None, example_unit: str) -> int:
        """The same batch size in examples of a workload.

        Raises:
            ExperimentError: its examples have no tokens, or are no sequences; no whole number of
                them.
        """
        several, at = plural(example_unit), (self.position,)
        if self.unit == SEQUENCES:
            if example_unit != "sequence":
                message = (
                    f"batch size {self} is in sequences, and the workload's data are {several}"
                )
                raise ExperimentError(message, hint=f"write {self.amount}", at=at)
            return self.amount
        if not tokens_per_example:
            message = f"batch size {self} is in tokens, and the workload has no tokens_per_example"
            raise ExperimentError(message, hint=_NO_TOKENS, at=at)
        whole, rest = divmod(self.amount, tokens_per_example)
        if rest:
            nearest = max(1, whole + (2 * rest > tokens_per_example)) * tokens_per_example
            raise ExperimentError(
                f"batch size {self} is no whole number of {several}: "
                f"{count(tokens_per_example, 'token')} each",
                hint=f"the nearest that is: {nearest} tokens",
                at=at,
            )
        return whole


BatchSize = int | str | SizeInUnit

TOKENS, SEQUENCES = "tokens", "sequences"
_NO_TOKENS = "set it on the class: tokens_per_example = 64; or count in examples"
_RANGE = re.compile(r"(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})")
_WHOLE = re.compile(r"-?\d{1,18}")
_IN_UNIT = re.compile(r"(.*\S)\s+(tokens?|sequences?)", re.DOTALL)
_LARGEST_BATCH = 10**18
_TERM = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]+)\s*")
LARGEST_BUDGET = 10**12
"""Largest number of each unit."""
_LONGEST_NUMBER = 40
_LARGEST_EXPONENT = 20
_UNITS = ("epochs", "steps", "examples", TOKENS)
_BUDGET_EXAMPLE = "for example: 50 epochs + 2000 steps (also: examples, tokens)"


def batch_sizes(value: Any) -> tuple[BatchSize, ...]:
    """Integers, sizes in a unit and ``full``, in the order given; whether they fit the data is not
    known here.

    Args:
        value: ``8``, ``"8..4096"``, ``"1..1024, full"``, ``"4096..65536 tokens"``, or a list of
            such.

    Raises:
        ExperimentError: an item is none of these, a size below 1, a reversed range, a repetition;
            some sizes have a unit and others none.
    """
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    sizes: dict[BatchSize, None] = {}
    for position, item in enumerate(items):
        parts = [p.strip() for p in item.split(",")] if isinstance(item, str) else [item]
        with below(position):
            for size in [size for part in parts for size in _in_unit(part, position)]:
                if size in sizes:
                    raise ExperimentError(f"batch size {size} is given twice", hint="keep one")
                sizes[size] = None
    if not sizes:
        raise ExperimentError("no batch sizes", hint="for example: 8..4096")
    units = [size for size in sizes if isinstance(size, SizeInUnit)]
    plain = [size for size in sizes if isinstance(size, int)]
    if units and plain:
        message = f"batch size {units[0]} has a unit, and {plain[0]} has none"
        raise ExperimentError(message, hint="give each a unit: [4096 tokens, 8192 tokens]")
    return tuple(sizes)


def _in_unit(item: Any, position: int) -> Sequence[BatchSize]:
    """The sizes of an item, each with the unit that the item ends in."""
    match = _IN_UNIT.fullmatch(item) if isinstance(item, str) else None
    if match is None:
        return _sizes(item)
    if match[1] == FULL:
        raise ExperimentError(f"{item!r} is not a batch size", hint="write full, without a unit")
    unit = match[2].rstrip("s") + "s"
    return [SizeInUnit(int(size), unit, position) for size in _sizes(match[1])]


def _sizes(item: Any) -> list[int | str]:
    if isinstance(item, bool) or not isinstance(item, (int, float, str)):
        hint = "for example: 8..4096, or [8, 32, full]"
        raise ExperimentError(f"{item!r} is not a batch size", hint=hint)
    if isinstance(item, str):
        if item == FULL:
            return [FULL]
        if match := _RANGE.fullmatch(item):
            return [*_doubling(int(match[1]), int(match[2]), item)]
        if not _WHOLE.fullmatch(item):
            hint = "for example: 8..4096, 64 or full"
            raise ExperimentError(f"{item!r} is not a batch size", hint=hint)
    elif isinstance(item, float) and not item.is_integer():
        raise ExperimentError(f"batch size {item} is not a whole number")
    size = int(item)
    if size < 1:
        raise ExperimentError(f"batch size {item} is below 1")
    if size > _LARGEST_BATCH:
        raise ExperimentError(f"batch size {size:g} is too large")
    return [size]


def _doubling(low: int, high: int, text: str) -> list[int]:
    if low < 1:
        raise ExperimentError(f"{text}: batch size {low} is below 1", hint="start at 1")
    if high < low:
        hint = f"write {high}..{low}" if high > 0 else None
        raise ExperimentError(f"the range {text} is reversed", hint=hint)
    sizes = [low]
    while sizes[-1] * 2 <= high:
        sizes.append(sizes[-1] * 2)
    return sizes


def in_examples(
    sizes: Sequence[BatchSize], tokens_per_example: int | None, example_unit: str
) -> list[int | str]:
    """The sizes in examples of a workload; ``full`` stays.

    Raises:
        ExperimentError: as ``SizeInUnit.examples``; two sizes are the same number of examples.
    """
    written: dict[int | str, BatchSize] = {}
    for size in sizes:
        if not isinstance(size, SizeInUnit):
            written[size] = size
            continue
        number = size.examples(tokens_per_example, example_unit)
        if number in written:
            message = f"batch size {size} is given twice: {written[number]} is the same"
            raise ExperimentError(message, hint="keep one", at=(size.position,))
        written[number] = size
    return list(written)


def with_full(sizes: Sequence[int | str], train_size: int | None) -> list[int]:
    """The sizes with ``full`` as the training set, in ascending order.

    Args:
        train_size: examples of the training set; ``None`` if it has no end.

    Raises:
        ExperimentError: a size over the training set, or ``full`` beside its own number, or of a
            training set without end.
    """
    if train_size is None:
        if FULL in sizes:
            message = "batch size full is the whole training set, and the training data have no end"
            raise ExperimentError(message, hint="name the largest batch size")
        return sorted(int(size) for size in sizes)
    numbers: set[int] = set()
    for size in sizes:
        number = train_size if isinstance(size, str) else size
        if number > train_size:
            raise ExperimentError(
                f"batch size {number} is over the training set ({count(train_size, 'example')})",
                hint="`full` is the whole training set as one batch",
            )
        if number in numbers:
            message = f"batch size {number} is given twice: full is {train_size}"
            raise ExperimentError(message, hint="keep one")
        numbers.add(number)
    return sorted(numbers)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long a trial may train: the sum of its parts, each exact."""

    epochs: Fraction = Fraction(0)
    steps: Fraction = Fraction(0)
    examples: Fraction = Fraction(0)
    tokens: Fraction = Fraction(0)

    @classmethod
    def parse(cls, text: object) -> Budget:
        """Read ``"50 epochs + 2000 steps"``; the units are epochs, steps, examples and
        tokens.

        Raises:
            ExperimentError: the text is something else, or the sum is zero.
        """
        if isinstance(text, (int, float)) and not isinstance(text, bool):
            raise ExperimentError(f"budget {text!r} has no unit", hint=_BUDGET_EXAMPLE)
        parts = dict.fromkeys(_UNITS, Fraction(0))
        for term in text.split("+") if isinstance(text, str) else [""]:
            match = _TERM.fullmatch(term)
            if not match:
                message = f"budget {text!r} is not a sum of epochs, steps, examples and tokens"
                raise ExperimentError(message, hint=_BUDGET_EXAMPLE)
            unit = match[2].lower().rstrip("s") + "s"
            if unit not in parts:
                message = f"budget {text!r} has an unknown unit {match[2]!r}"
                raise ExperimentError(message, hint=_BUDGET_EXAMPLE)
            parts[unit] += _exact(match[1], text)
        if not any(parts.values()):
            raise ExperimentError(f"budget {text!r} is zero", hint=_BUDGET_EXAMPLE)
        return cls(**parts)

    def in_steps(
        self, batch_size: int, train_size: int | None, tokens_per_example: int | None = None
    ) -> int:
        """Steps of ``batch_size`` examples each, rounded down (0 if it is less than one).

        An epoch is ``train_size // batch_size`` steps, since its last short batch is dropped.

        Raises:
            ExperimentError: epochs of a training set without end (``train_size`` is ``None``);
                tokens of examples that have none.
        """
        self.check_tokens(tokens_per_example)
        if train_size is None and self.epochs:
            message = f"budget {self} has epochs, and the training data have no end"
            hint = "steps and examples: 2000 steps + 1000000 examples"
            raise ExperimentError(message, hint=hint)
        epoch = (train_size or 0) // batch_size
        examples = self.examples + (self.tokens / tokens_per_example if tokens_per_example else 0)
        total = self.epochs * epoch + self.steps + examples / batch_size
        return total.numerator // total.denominator

    def check_tokens(self, tokens_per_example: int | None) -> None:
        """Tokens must be those of examples that have them.

        Raises:
            ExperimentError: they are not.
        """
        if self.tokens and not tokens_per_example:
            message = f"budget {self} has tokens, and the workload has no tokens_per_example"
            raise ExperimentError(message, hint=_NO_TOKENS)

    def __str__(self) -> str:
        """As an experiment file writes it; ``parse`` gives the same budget back."""
        amounts = [(getattr(self, unit), unit) for unit in _UNITS if getattr(self, unit)]
        return " + ".join(f"{_decimal(amount)} {unit}" for amount, unit in amounts)


def _exact(number: str, text: object) -> Fraction:
    """The number as a fraction; one such as 1e999999999, which would fill the memory, is refused
    before it is converted."""
    exponent = number.lower().partition("e")[2] or "0"
    if len(number) > _LONGEST_NUMBER or abs(int(exponent)) > _LARGEST_EXPONENT:
        message = f"budget {text!r}: {number} is too long, too large or too small"
        raise ExperimentError(message, hint=_BUDGET_EXAMPLE)
    amount = Fraction(number)
    if amount > LARGEST_BUDGET:
        raise ExperimentError(f"budget {text!r} is over {LARGEST_BUDGET:,}", hint=_BUDGET_EXAMPLE)
    return amount


def _decimal(amount: Fraction) -> str:
    """Exact: the amount was read from a decimal number."""
    if amount.denominator == 1:
        return str(amount.numerator)
    digits = 0
    while (amount * 10**digits).denominator != 1:
        digits += 1
    whole = str((amount * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{whole[:-digits]}.{whole[-digits:]}"
