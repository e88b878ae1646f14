"""Cases of a parametrized test in the quick and in the slow group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def quick(cases: Iterable[Any], count: int) -> list[Any]:
    """The ``cases``, of which the first ``count`` are quick and the others slow tests."""
    listed = list(cases)
    return [*listed[:count], *(_slow(case) for case in listed[count:])]


def _slow(case: Any) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
