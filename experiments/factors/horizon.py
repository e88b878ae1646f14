"""How far back in the data an average or the weights reach, an amount such as 1e6 tokens.

- The **half-life** of an average with factor β per step of B examples is the amount of data after
  which a gradient has half its weight: β = 2^(-B / half-life) (Marek et al. 2025,
  arXiv:2507.07101).
- The **time scale** of decoupled weight decay λ at learning rate η is the amount of data over which
  the weights are averaged: λ = B / (η · time scale) (Wang & Aitchison 2024, arXiv:2405.13698).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from experiments.errors import ExperimentError
from results.counts import count

TOKENS, EXAMPLES = "tokens", "examples"
_AMOUNT = re.compile(r"\s*(\d+\.?\d*(?:[eE]\+?\d{1,2})?|\.\d+)\s*(tokens?|examples?)\s*")
_MOST = 1e30
_FIGURES = 9


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """An amount of data."""

    amount: float
    unit: str
    """``tokens`` or ``examples``."""

    @classmethod
    def parse(cls, text: Any) -> Horizon:
        """Read ``1e6 tokens`` or ``50000 examples``.

        Raises:
            ExperimentError: it is something else, or not over zero.
        """
        match = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
        amount = float(match[1]) if match else 0.0
        if match is None or not 0 < amount <= _MOST:
            message = f"{text!r} is not an amount of data over zero, in tokens or examples"
            raise ExperimentError(message, hint="for example: 1e6 tokens, or 50000 examples")
        return cls(amount=amount, unit=match[2].rstrip("s") + "s")

    def __str__(self) -> str:
        """As results record it: the same for ``1e6 tokens`` and ``1000000 tokens``."""
        whole = self.amount.is_integer() and self.amount < 2**53
        return f"{int(self.amount) if whole else repr(self.amount)} {self.unit}"

    def examples(self, tokens_per_example: int | None) -> float:
        """The amount in examples.

        Raises:
            ExperimentError: it is in tokens, and examples have none.
        """
        if self.unit == EXAMPLES:
            return self.amount
        if not tokens_per_example:
            message = f"{self} is in tokens, and the workload has no tokens_per_example"
            hint = "set it on the class: tokens_per_example = 64; or count in examples"
            raise ExperimentError(message, hint=hint)
        return self.amount / tokens_per_example

    def decay_factor(self, batch_size: int, tokens_per_example: int | None) -> float:
        """β of an average with this half-life, per step of ``batch_size`` examples.

        Raises:
            ExperimentError: β is 0 or 1 to rounding; as ``examples``.
        """
        steps = self.examples(tokens_per_example) / batch_size
        factor = complement(-math.expm1(-math.log(2) / steps))
        if 0 < factor < 1:
            return factor
        raise ExperimentError(
            f"a half-life of {self} makes the factor {factor:.0f} to rounding at batch size "
            f"{batch_size}, {steps:.2g} steps",
            hint="choose a longer half-life, or leave that batch size out"
            if factor == 0
            else "choose a shorter half-life",
        )

    def weight_decay(
        self, batch_size: int, learning_rate: float, tokens_per_example: int | None
    ) -> float:
        """λ with this time scale at a learning rate.

        Raises:
            ExperimentError: the learning rate is zero; a step would take the weights to zero or
                beyond it; as ``examples``.
        """
        scale = self.examples(tokens_per_example)
        if scale <= batch_size:
            raise ExperimentError(
                f"a time scale of {self} is {count(math.floor(scale), 'example')}, no more than "
                f"batch size {batch_size}: each step would erase the weights",
                hint="choose a longer time scale, or leave that batch size out",
            )
        if learning_rate <= 0:
            raise ExperimentError(
                f"no weight decay has a time scale at learning rate {learning_rate:g}",
                hint="search learning rates over 0",
            )
        return rounded(batch_size / (learning_rate * scale))


def rounded(x: float) -> float:
    """To nine significant figures, since the last bits of powers differ between machines, and a
    trial's identity must not."""
    return float(f"{x:.{_FIGURES - 1}e}")


def complement(x: float) -> float:
    """1 - x, where x has nine significant figures."""
    return round(1 - rounded(x), 15)
