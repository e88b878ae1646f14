"""Amounts of training and of data: ``50 epochs + 2000 steps``, ``1e6 tokens``."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from experiments.errors import ExperimentError

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
