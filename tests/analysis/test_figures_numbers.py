"""The paper's figures of packaged data show what they showed."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.analysis import figures_numbers as guarded


@pytest.mark.parametrize(("source", "name"), list(guarded.every()))
def test_numbers_do_not_change_silently(source: str, name: str) -> None:
    """``python -m tests.analysis.figures_numbers`` renews them, once the figure was looked at."""
    expected = pd.read_csv(guarded.path(source, name))
    found = guarded.numbers(source, name)
    assert list(found) == list(expected)
    assert len(found) == len(expected)
    for column in found:
        want, have = expected[column], found[column]
        if pd.api.types.is_numeric_dtype(want) and want.dtype != bool:
            have = pd.to_numeric(have).astype(float)
            assert have.tolist() == pytest.approx(
                want.astype(float).tolist(), rel=1e-6, nan_ok=True
            )
        else:
            assert have.fillna("").astype(str).tolist() == want.fillna("").astype(str).tolist()


def test_each_reference_is_of_a_figure_that_is_guarded() -> None:
    there = {path.name for path in guarded.FOLDER.glob("*.csv")}
    assert there == {guarded.path(source, name).name for source, name in guarded.every()}
