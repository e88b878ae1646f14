"""Amounts of training and of data, ``50 epochs + 2000 steps``, ``1e6 tokens``; and batch sizes,
``8..4096``, ``[8, 32, full]``, ``4096..262144 tokens``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from experiments.errors import ExperimentError, below
from results.counts import count, plural

TOKENS, EXAMPLES = "tokens", "examples"
UNITS = ("epochs", "steps", EXAMPLES, TOKENS)
_TERM = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]+)\s*")
_PLUS = re.compile(r"(?<![eE])\+")
"""Between two terms: not that of ``1e+6``."""
_LONGEST_NUMBER = 40
_LARGEST_EXPONENT = 20


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A sum of amounts in several units, each exact: a budget, or a half-life."""

    epochs: Fraction = Fraction(0)
    steps: Fraction = Fraction(0)
    examples: Fraction = Fraction(0)
    tokens: Fraction = Fraction(0)

    @classmethod
    def parse(
        cls,
        text: object,
        units: Collection[str] = UNITS,
        hint: str = "for example: 50 epochs + 2000 steps (also: examples, tokens)",
    ) -> Amount:
        """Read ``"50 epochs + 2000 steps"``.

        Args:
            hint: for errors.

        Raises:
            ExperimentError: the text is something else, has another unit, or the sum is zero.
        """
        if isinstance(text, (int, float)) and not isinstance(text, bool):
            raise ExperimentError(f"{text!r} has no unit", hint=hint)
        parts = dict.fromkeys(units, Fraction(0))
        for term in _PLUS.split(text) if isinstance(text, str) else [""]:
            match = _TERM.fullmatch(term)
            if not match:
                *first, last = units
                message = f"{text!r} is not a sum of {', '.join(first)} and {last}"
                raise ExperimentError(message, hint=hint)
            unit = match[2].lower().rstrip("s") + "s"
            if unit not in parts:
                message = f"{text!r} has an unknown unit {match[2]!r}"
                raise ExperimentError(message, hint=hint)
            # One such as 1e999999999 would fill the memory, once it is converted.
            exponent = match[1].lower().partition("e")[2] or "0"
            if len(match[1]) > _LONGEST_NUMBER or abs(int(exponent)) > _LARGEST_EXPONENT:
                message = f"{text!r}: {match[1]} is too long, too large or too small"
                raise ExperimentError(message, hint=hint)
            parts[unit] += Fraction(match[1])
        if not any(parts.values()):
            raise ExperimentError(f"{text!r} is zero", hint=hint)
        return cls(**parts)

    def in_examples(self, tokens_per_example: int | None) -> Fraction:
        """Its examples and tokens.

        Raises:
            ExperimentError: tokens of examples that have none.
        """
        each = tokens_each(tokens_per_example, str(self)) if self.tokens else 1
        return self.examples + self.tokens / each

    def in_steps(
        self, batch_size: int, train_size: int | None, tokens_per_example: int | None = None
    ) -> int:
        """Steps of ``batch_size`` examples each, rounded down (0 if it is less than one).

        An epoch is ``train_size // batch_size`` steps, since its last short batch is dropped.

        Raises:
            ExperimentError: epochs of a training set without end (``train_size`` is ``None``);
                tokens of examples that have none.
        """
        if train_size is None and self.epochs:
            message = f"{self} has epochs, and the training data have no end"
            hint = "steps and examples: 2000 steps + 1000000 examples"
            raise ExperimentError(message, hint=hint)
        epochs = self.epochs * ((train_size or 0) // batch_size)
        return int(epochs + self.steps + self.in_examples(tokens_per_example) / batch_size)

    def __str__(self) -> str:
        """As an experiment file writes it; ``parse`` gives the same amount back."""
        amounts = [(getattr(self, unit), unit) for unit in UNITS if getattr(self, unit)]
        return " + ".join(f"{_decimal(amount)} {unit}" for amount, unit in amounts)


def tokens_each(
    tokens_per_example: int | None, what: str, instead: str = "count in examples"
) -> int:
    """The tokens of an example, for ``what`` is in tokens.

    Raises:
        ExperimentError: a workload does not say them.
    """
    if tokens_per_example:
        return tokens_per_example
    message = f"{what} is in tokens, and the workload has no tokens_per_example"
    hint = f"set it on the class: tokens_per_example = 64; or {instead}"
    raise ExperimentError(message, hint=hint)


def _decimal(amount: Fraction) -> str:
    """Exact: the amount was read from a decimal number."""
    if amount.denominator == 1:
        short = repr(float(amount))  # of 1e20, whose twenty zeros nobody counts
        whole = amount < 2**53 or Fraction(short) != amount
        return str(amount.numerator) if whole else short
    digits = 0
    while (amount * 10**digits).denominator != 1:
        digits += 1
    text = str((amount * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}"


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
        what, several = f"batch size {self}", plural(example_unit)
        if self.unit == SEQUENCES:
            if example_unit != "sequence":
                message = f"{what} is in sequences, and the workload's data are {several}"
                raise ExperimentError(message, hint=f"write {self.amount}")
            return self.amount
        each = tokens_each(tokens_per_example, what)
        whole, rest = divmod(self.amount, each)
        if rest:
            nearest = max(1, whole + (2 * rest > each)) * each
            message = f"{what} is no whole number of {several}: {count(each, 'token')} each"
            raise ExperimentError(message, hint=f"the nearest that is: {nearest} tokens")
        return whole


BatchSize = int | str | SizeInUnit

SEQUENCES = "sequences"
_SIZE = re.compile(r"(?:(-?\d{1,18})\s*\.\.\s*)?(-?\d{1,18})(?:\s+(token|sequence)s?)?")
_LARGEST_BATCH = 10**18


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
            for size in [size for part in parts for size in _sizes(part, position)]:
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


def _sizes(item: Any, position: int) -> list[BatchSize]:
    """The sizes of an item: ``full``, a number, or a range that doubles, perhaps in a unit."""
    if item == FULL:
        return [FULL]
    match = _SIZE.fullmatch(item) if isinstance(item, str) else None
    if match is None and (isinstance(item, bool) or not isinstance(item, (int, float))):
        of_full = isinstance(item, str) and item.split()[:1] == [FULL]
        example = "for example: 8..4096, or [8, 32, full]"
        hint = "write full, without a unit" if of_full else example
        raise ExperimentError(f"{item!r} is not a batch size", hint=hint)
    if isinstance(item, float) and not item.is_integer():
        raise ExperimentError(f"batch size {item} is not a whole number")
    low, high, unit = match.groups() if match else (None, item, None)
    first, last = int(low or high), int(high)
    if first < 1:
        message = f"batch size {first} is below 1"
        if low:
            raise ExperimentError(f"{low}..{high}: {message}", hint="start at 1")
        raise ExperimentError(message)
    if last < first:
        reverse = f"write {high}..{low}" if last > 0 else None
        raise ExperimentError(f"the range {low}..{high} is reversed", hint=reverse)
    if last > _LARGEST_BATCH:
        raise ExperimentError(f"batch size {last:g} is too large")
    sizes = [first]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return [SizeInUnit(size, f"{unit}s", position) if unit else size for size in sizes]


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
        with below(size.position):
            number = size.examples(tokens_per_example, example_unit)
            if number in written:
                message = f"batch size {size} is given twice: {written[number]} is the same"
                raise ExperimentError(message, hint="keep one")
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
