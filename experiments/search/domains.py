"""The values that a metaparameter may have, by its name.

What an experiment file says is checked against them, and a range is never enlarged beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Domain:
    """From ``low``, to below ``high``, or to ``high`` itself where it is ``closed``.

    ``above``: ``low`` itself is not in it. ``whole``: whole numbers alone.
    """

    low: float = -math.inf
    high: float = math.inf
    closed: bool = False
    above: bool = False
    whole: bool = False

    def __contains__(self, value: float) -> bool:
        if self.whole and not float(value).is_integer():
            return False
        over = self.low < value if self.above else self.low <= value
        return over and (value <= self.high if self.closed else value < self.high)

    def __str__(self) -> str:
        """As in ``[0, 1)``."""
        ends = f"{'(' if self.above else '['}{self.low:g}, {self.high:g}"
        return f"{ends}{']' if self.closed else ')'}{' in whole numbers' if self.whole else ''}"


_UNIT_INTERVAL = Domain(low=0, high=1)
DOMAINS = {
    "learning_rate": Domain(low=0),
    "momentum": _UNIT_INTERVAL,
    "beta1": _UNIT_INTERVAL,
    "beta2": _UNIT_INTERVAL,
    "epsilon": Domain(low=0),
    "weight_decay": Domain(low=0),
    "ns_steps": Domain(low=1, high=100, whole=True),
    "precondition_frequency": Domain(low=1, whole=True),
    "matrix_eps": Domain(low=0),
    "update_period": Domain(low=1, whole=True),
    "rho": Domain(low=0, above=True),
    "momentum_decay": Domain(low=0),
    "trust_coefficient": Domain(low=0),
    "label_smoothing": _UNIT_INTERVAL,
    "dropout": _UNIT_INTERVAL,
}
"""Domains of optimizers' arguments and of usual fields; a schedule has its own."""


def domain_of(
    name: str, low: float, domains: Mapping[str, Domain] = DOMAINS, *, whole: bool = False
) -> Domain:
    """The domain of ``name``; for an unknown one, derived from its range's lower bound ``low``: a
    range without negative values stays so, and whole numbers of at least 1 do too.

    Args:
        domains: a schedule's, which go before the usual ones.
    """
    if name in domains:
        return domains[name]
    usual = name.rpartition(".")[2]  # adamw.learning_rate is a learning rate
    if usual in DOMAINS:
        return DOMAINS[usual]
    if low < 0:
        return Domain()
    return Domain(low=1 if whole and low >= 1 else 0)
