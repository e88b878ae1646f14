"""The small-batch penalty's intervals cover: docs/truth.md."""

from __future__ import annotations

import pytest

from validation import penalty
from validation.page import PAGE, kept, sections


def test_the_page_has_the_table_of_the_kept_counts() -> None:
    text = sections(PAGE.read_text(encoding="utf-8"))["penalty"]
    assert text.strip() == penalty.render(kept("penalty")).strip()


@pytest.mark.parametrize("name", penalty.TRUTHS)
@pytest.mark.parametrize("kinds", [penalty.FALLING, penalty.OTHERS])
def test_intervals_cover(kinds: tuple[str, ...], name: str) -> None:
    frame = kept("penalty")
    for noise in (0.02, 0.05, 0.10):
        rows = frame[frame["kind"].isin(kinds) & (frame["noise"] == noise)]
        assert 0.85 <= rows[f"covered:{name}"].sum() / rows["flagged"].sum() <= 0.97
        assert rows[f"covered:{name}"].min() >= 0.8 * rows["flagged"].min()


def test_monotone_curves_are_seldom_flagged_and_penalties_mostly() -> None:
    frame = kept("penalty")
    penalized = frame["kind"].isin([*penalty.FALLING, *penalty.OTHERS])
    assert frame.loc[~penalized, "flagged"].sum() <= 0.05 * frame.loc[~penalized, "curves"].sum()
    clear = frame[frame["kind"].isin(penalty.FALLING) & (frame["noise"] <= 0.05)]
    assert clear["flagged"].sum() >= 0.9 * clear["curves"].sum()
