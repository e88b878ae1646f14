"""A target: a metric, a direction and a value, as written in "validation_error < 0.05"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from results.errors import ResultsError

_PATTERN = re.compile(
    r"^\s*([A-Za-z_]\w*)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$"
)

_HIGHER = ("accuracy", "precision", "recall", "auc", "bleu", "f1", "score")


def lower_is_better(metric: str) -> bool:
    """The better direction of a metric of which its name alone is given."""
    return not any(name in metric for name in _HIGHER)


@dataclass(frozen=True, kw_only=True, order=True)
class Target:
    """``metric`` is a measurement column, ``<split>_<metric>``; it must be strictly better."""

    metric: str
    value: float
    lower_is_better: bool = True

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``"METRIC < VALUE"`` or ``"METRIC > VALUE"``.

        Raises:
            ResultsError: the text is neither.
        """
        match = _PATTERN.match(text)
        if not match:
            raise ResultsError(
                f"target {text!r} is not METRIC < VALUE or METRIC > VALUE",
                hint="for example: validation_error < 0.05",
            )
        if not math.isfinite(float(match[3])):
            raise ResultsError(f"target {text!r}: {match[3]} is not a finite number")
        return cls(metric=match[1], value=float(match[3]), lower_is_better=match[2] == "<")

    def hit(self, value: float) -> bool:
        """Strictly better, in float64 (NaN is never a hit): 20 errors of 500 are not < 0.04."""
        return bool(self.hits(value))

    def hits(self, values: Any) -> Any:
        """``hit`` for each of an array or a Series of values."""
        return values < self.value if self.lower_is_better else values > self.value

    def __str__(self) -> str:
        """The text form, with the exact value: ``parse`` gives the same target again."""
        value = f"{self.value:g}" if float(f"{self.value:g}") == self.value else repr(self.value)
        return f"{self.metric} {'<' if self.lower_is_better else '>'} {value}"
