"""The numbers of figures, held to committed ones: ``figures_reference/<figure>.csv``.

    hold("forest", figures.numbers("forest", shown))

A figure that comes to say something else fails its test. Where that was meant,
``RENEW_FIGURES=1 python -m pytest tests/analysis`` writes the files again; their difference in git
is what changed, and is to be read before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parent / "figures_reference"
RELATIVE = 1e-6
"""Fits end at a tolerance of their own, and other processors round otherwise."""
ROUNDING = 1e-14
"""What is zero but for rounding: other versions of numpy sum in another order."""


def hold(name: str, frame: pd.DataFrame) -> None:
    """Fail unless ``frame`` is what ``figures_reference/<name>.csv`` has: the same columns and
    rows in order, texts equal, numbers within ``RELATIVE`` of each other or ``ROUNDING`` of zero,
    nothing where nothing is.
    """
    path = FOLDER / f"{name}.csv"
    if os.environ.get("RENEW_FIGURES"):
        frame.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
        pytest.skip(f"{path.name} was written again")
    if not path.is_file():
        pytest.fail(f"no {path.name}: write it with RENEW_FIGURES=1")
    compare(name, read(frame.to_csv(index=False)), read(path.read_text()))


def read(text: str) -> pd.DataFrame:
    """CSV text, every cell as text; both sides go through it, so that types are no difference."""
    from io import StringIO

    return pd.read_csv(StringIO(text), dtype=str, keep_default_na=False)


def compare(
    name: str, computed: pd.DataFrame, committed: pd.DataFrame, *, within: float = RELATIVE
) -> None:
    """Fail with the first column that differs, and the first rows in which it does."""
    assert list(computed.columns) == list(committed.columns), f"{name}: other columns"
    assert len(computed) == (n := len(committed)), f"{name}: {len(computed)} rows, {n} committed"
    for column in committed.columns:
        cells = enumerate(zip(computed[column], committed[column], strict=True))
        unlike = [
            f"row {row}: {value!r}, committed {other!r}"
            for row, (value, other) in cells
            if not _same(value, other, within)
        ]
        assert not unlike, f"{name}, column {column}: " + "; ".join(unlike[:3])


def _same(value: str, other: str, within: float) -> bool:
    if value == other:
        return True
    try:
        numbers = float(value), float(other)
    except ValueError:
        return False
    return max(map(abs, numbers)) < ROUNDING or bool(np.isclose(*numbers, rtol=within, atol=0))
