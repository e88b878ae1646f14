"""What guards the figures' numbers can fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.analysis import reference
from tests.analysis.reference import hold

KNOWN = pd.DataFrame(
    {"curve": ["sgd", "adam", "lion"], "steps": [12.5, np.nan, 3.0], "sure": [True, False, True]}
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.delenv("RENEW_FIGURES", raising=False)
    KNOWN.to_csv(tmp_path / "some.csv", index=False)


def test_the_same_numbers_hold_and_rounding_is_no_change() -> None:
    hold("some", KNOWN)
    hold("some", KNOWN.assign(steps=KNOWN["steps"] * (1 + 1e-7)))
    hold("some", KNOWN.astype({"steps": object}))
    KNOWN.assign(steps=[12.5, np.nan, 2e-15]).to_csv(reference.FOLDER / "some.csv", index=False)
    hold("some", KNOWN.assign(steps=[12.5, np.nan, 0.0]))
    hold("some", KNOWN.assign(steps=[12.5, np.nan, -3e-15]))
    with pytest.raises(AssertionError, match="row 2"):
        hold("some", KNOWN.assign(steps=[12.5, np.nan, 2e-14]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (KNOWN.assign(steps=KNOWN["steps"] * (1 + 1e-5)), "column steps: row 0"),
        (KNOWN.assign(steps=KNOWN["steps"].fillna(0)), "column steps: row 1"),
        (KNOWN.assign(curve=["sgd", "Adam", "lion"]), "column curve: row 1: 'Adam'"),
        (KNOWN.assign(sure=True), "column sure: row 1"),
        (KNOWN[::-1], "column curve: row 0"),
        (KNOWN[:2], "2 rows, 3 committed"),
        (KNOWN[["steps", "curve", "sure"]], "other columns"),
    ],
)
def test_any_other_change_fails(changed: pd.DataFrame, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        hold("some", changed)
    assert said in str(caught.value)


def test_a_figure_without_reference_fails_and_renewing_writes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(pytest.fail.Exception, match="RENEW_FIGURES=1"):
        hold("other", KNOWN)
    monkeypatch.setenv("RENEW_FIGURES", "1")
    with pytest.raises(pytest.skip.Exception):
        hold("other", KNOWN)
    monkeypatch.delenv("RENEW_FIGURES")
    hold("other", KNOWN)
