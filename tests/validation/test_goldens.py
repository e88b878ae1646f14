"""Published curves, put where their authors say that the regimes lie."""

from __future__ import annotations

import pytest

from tests.analysis.test_definitions import THEIRS
from validation import goldens
from validation.goldens import Golden
from validation.page import PAGE, blocks


@pytest.fixture(scope="module")
def found() -> list[Golden]:
    return goldens.goldens()


def test_the_same_numbers_are_held_against_as_elsewhere() -> None:
    assert {size.lower(): value for size, value in THEIRS.items()} == goldens.THEIRS


def test_what_agrees_and_what_does_not(found: list[Golden]) -> None:
    """One cannot be said: from batch size 16 to 64 its steps fall by 2.6, not by 4."""
    assert len(found) == 18
    assert [one for one in found if one.agrees is not None and not one.agrees] == []
    (bounded,) = (one for one in found if one.agrees is None)
    assert (bounded.curve, bounded.statement.quantity) == (
        "lm1b-lstm, nesterov", "the three regimes"
    )  # fmt: skip
    assert "4 times the batch size takes 2.6 times fewer" in bounded.why


def test_what_is_remembered_is_marked(found: list[Golden]) -> None:
    for one in found:
        if "Shallue et al. 2019," in one.statement.place:  # of the text
            assert one.statement.place.endswith("(r)")


def test_the_page_is_what_they_say() -> None:
    assert blocks(PAGE.read_text(encoding="utf-8"))["goldens"] == goldens.tables()["goldens"]
