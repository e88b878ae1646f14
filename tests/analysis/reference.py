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


def hold(name: str, frame: pd.DataFrame) -> None:
    """Fail unless ``frame`` is what ``figures_reference/<name>.csv`` has: the same columns and
    rows in order, texts equal, numbers within ``RELATIVE`` of each other, nothing where nothing is.
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


def compare(name: str, found: pd.DataFrame, known: pd.DataFrame) -> None:
    """Fail with the first column that differs, and the first rows in which it does."""
    assert list(found.columns) == list(known.columns), f"{name}: other columns"
    assert len(found) == len(known), f"{name}: {len(found)} rows, {len(known)} known"
    for column in known.columns:
        unlike = [
            f"row {row}: {one!r}, known {other!r}"
            for row, (one, other) in enumerate(zip(found[column], known[column], strict=True))
            if not _same(one, other)
        ]
        assert not unlike, f"{name}, column {column}: " + "; ".join(unlike[:3])


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(np.isclose(float(one), float(other), rtol=RELATIVE, atol=0))
    except ValueError:
        return False
