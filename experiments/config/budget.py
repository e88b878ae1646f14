"""How long a trial may train: ``50 epochs + 2000 steps``, a sum as S(B) itself is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_TERM = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]+)\s*")
MOST = 10**12
"""Of each unit: nobody has trained for so long."""
_LONGEST = 40
_LARGEST_EXPONENT = 20
_UNITS = ("epochs", "steps", "examples")


class BudgetError(ValueError):
    """A text that is no budget; the caller knows where it stands."""

    hint = "for example: 50 epochs + 2000 steps (also: examples)"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The sum of its parts, each exact."""

    epochs: Fraction = Fraction(0)
    steps: Fraction = Fraction(0)
    examples: Fraction = Fraction(0)

    @classmethod
    def parse(cls, text: object) -> Budget:
        """Read ``"50 epochs + 2000 steps"``; the units are epochs, steps and examples.

        Raises:
            BudgetError: the text is something else, or the sum is zero.
        """
        if isinstance(text, (int, float)) and not isinstance(text, bool):
            raise BudgetError(f"budget {text!r} has no unit")
        if not isinstance(text, str):
            raise BudgetError(f"budget {text!r} is not a sum of epochs, steps and examples")
        parts = dict.fromkeys(_UNITS, Fraction(0))
        for term in text.split("+"):
            match = _TERM.fullmatch(term)
            if not match:
                raise BudgetError(f"budget {text!r} is not a sum of epochs, steps and examples")
            unit = match[2].lower().rstrip("s") + "s"
            if unit not in parts:
                raise BudgetError(f"budget {text!r} has an unknown unit {match[2]!r}")
            parts[unit] += _amount(match[1], text)
        if not any(parts.values()):
            raise BudgetError(f"budget {text!r} is no step at all")
        return cls(**parts)

    def in_steps(self, batch_size: int, train_size: int) -> int:
        """Steps of ``batch_size`` examples each, rounded down (0 if it is less than one).

        An epoch is ``train_size // batch_size`` steps, since its last short batch is dropped.
        """
        epoch = train_size // batch_size
        total = self.epochs * epoch + self.steps + self.examples / batch_size
        return total.numerator // total.denominator

    def __str__(self) -> str:
        """As an experiment file writes it; ``parse`` gives the same budget back."""
        given = [(getattr(self, unit), unit) for unit in _UNITS if getattr(self, unit)]
        return " + ".join(f"{_decimal(amount)} {unit}" for amount, unit in given)


def _amount(number: str, text: str) -> Fraction:
    """Exact, where that can be: of 1e999999999 the digits alone would take for ever."""
    exponent = number.lower().partition("e")[2] or "0"
    if len(number) > _LONGEST or abs(int(exponent)) > _LARGEST_EXPONENT:
        raise BudgetError(f"budget {text!r}: {number} is no length of training")
    amount = Fraction(number)
    if amount > MOST:
        raise BudgetError(f"budget {text!r} is over {MOST:,}")
    return amount


def _decimal(amount: Fraction) -> str:
    """Exact: what was read is a decimal number."""
    if amount.denominator == 1:
        return str(amount.numerator)
    digits = 0
    while (amount * 10**digits).denominator != 1:
        digits += 1
    whole = str((amount * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{whole[:-digits]}.{whole[-digits:]}"
