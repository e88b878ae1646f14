"""Lengths as shares of the baseline's steps to target: ``begin: 0.5 of target``.

They are for what a file gives as a share of the budget. The target may come at a tenth of the
budget, before what begins at half of it has begun. Which budget share such a length is depends on
the baseline's study of the same batch size, so that a study with one waits until that is complete.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from experiments.search.space import rounded

_TEXT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s+of\s+target\s*")

HINT = "a share of the budget, such as 0.5, or of the baseline's steps to target: 0.5 of target"


class TargetShare(float):
    """A share of the baseline's steps to target.

    As a number, it is the share of the budget that it would be if the baseline took all of it: what
    a share of the budget may be, this may be too. It equals no plain number.
    """

    @classmethod
    def parse(cls, value: Any) -> Any:
        """``"0.5 of target"`` as a share; any other value unchanged."""
        match = _TEXT.fullmatch(value) if isinstance(value, str) else None
        return cls(match[1]) if match else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TargetShare) and float(self) == float(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"{float(self):.15g} of target"

    __str__ = __repr__


def shares_of_target(values: Mapping[str, Any], names: Collection[str]) -> dict[str, TargetShare]:
    """Those of ``values`` that are of the target, among ``names``."""
    parsed = {name: TargetShare.parse(value) for name, value in values.items() if name in names}
    return {name: value for name, value in parsed.items() if mentions(value)}


def shares(value: Any) -> Iterator[TargetShare]:
    """What of ``value``, itself or what it holds at any depth, is of the target."""
    if isinstance(value, TargetShare):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from shares(item)


def mentions(value: Any) -> bool:
    """Whether ``value``, or what it holds at any depth, is of the target."""
    return next(shares(value), None) is not None


def in_text(value: Any) -> Any:
    """``value`` with these shares as a file writes them."""
    return _replaced(value, str)


def resolved(value: Any, steps: float, budget_steps: float) -> Any:
    """``value`` with shares of the budget, where the baseline's steps to target are ``steps``."""
    return _replaced(value, lambda share: rounded(float(share) * steps / budget_steps))


def _replaced(value: Any, replace: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _replaced(item, replace) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(item, replace) for item in value)
    return replace(value) if isinstance(value, TargetShare) else value
