"""The page findings/techniques.md: what its command writes, and that the page is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.notes import Note
from tests.docs.conftest import program

ROOT = Path(__file__).resolve().parents[2]
CLEAR = {"value": 2.0, "low": 1.5, "high": 2.7, "p_corrected": 0.012}
SAME = {"value": 0.93, "low": 0.62, "high": 1.4, "p_corrected": 1.0}
OPEN = dict.fromkeys(CLEAR)
QUANTITIES = ("critical_batch_size", "perfect_scaling_until", "min_steps", "min_examples")


def row(
    name: str, tested: bool = True, notes: tuple[Note, ...] = (), **ratios: Any
) -> dict[str, Any]:
    """A row of ``batchscale techniques --json``; ratios that are not given do not differ."""
    every = {**dict.fromkeys(QUANTITIES, SAME), **ratios}
    return {"name": name, "tested": tested, "ratios": every, "notes": list(notes)}


@pytest.fixture(scope="module")
def page() -> Any:
    return program("measured")


def test_a_screen_has_a_row_for_what_differs_and_names_the_rest(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (
        Note("trained_again", times=times, spread=spread, missed="")
        for times, spread in ((1.2, " (two)"), (1.58, ""))
    )
    rows = [
        row("clip 1", min_steps=CLEAR, notes=(few,)),
        row("ema 0.9", notes=(Note("of_baseline", baseline="sgd", note=many),)),
        row("dropout 0.1"),
        row("freeze 0.*", **dict[str, Any](dict.fromkeys(QUANTITIES, OPEN))),
        row("swa 0.75", tested=False),
    ]
    monkeypatch.setattr(page, "measured", lambda _: rows)
    screen = page.Screen(title="All", what="Against SGD.", experiment="techniques-all")
    text = page.page(page.Sections(screens=(screen,)))
    assert text.startswith("# ")
    assert "\n## All\n\nAgainst SGD.\n" in text
    same = "0.93 [0.62, 1.4]"
    assert text.count(same) == 3
    assert f"| `clip 1` | {same} | {same} | **2.0 [1.5, 2.7]** | {same} |\n" in text
    assert "plain training**: `ema 0.9` and `dropout 0.1`.\n" in text
    assert "- **Unknown**: `freeze 0.*`.\n" in text
    assert "target**: `swa 0.75`.\n" in text
    assert "the best configurations take 1.20 to 1.58 times" in text
    command = "batchscale techniques own --where \"experiment = 'techniques-all'\" --correction fdr"
    assert f"```sh\n{command}\n" in text


@pytest.mark.parametrize(
    ("low", "high", "p", "above", "same", "not_above"),
    [
        (1.4, 2.0, 0.02, "agrees", "disagrees", "disagrees"),
        (1.4, None, 0.02, "agrees", "disagrees", "disagrees"),
        (0.4, 0.7, 0.02, "disagrees", "disagrees", "agrees"),
        (0.8, 1.3, 1.0, "undecided", "compatible", "compatible"),
        (1.1, 1.9, 0.3, "undecided", "undecided", "undecided"),  # only before the correction
        (0.5, 0.9, 0.3, "undecided", "undecided", "compatible"),
        (None, 1.3, 0.6, "undecided", "undecided", "compatible"),
        (0.8, None, 0.6, "undecided", "undecided", "undecided"),
        (None, None, None, "undecided", "undecided", "undecided"),
    ],
)
def test_what_a_ratio_says_of_a_claim(
    page: Any,
    low: float | None,
    high: float | None,
    p: float | None,
    above: str,
    same: str,
    not_above: str,
) -> None:
    ratio = {"value": 1.0, "low": low, "high": high, "p_corrected": p}
    for side, verdict in (("above 1", above), ("1", same), ("not above 1", not_above)):
        expected = page.Expected(says="So", quantity="min_steps", side=side)
        assert expected.verdict(ratio) == verdict
        assert expected.verdict(ratio, tested=False) == "not tested"


def test_a_published_claim_has_each_ratio_with_its_interval_and_a_verdict(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row("prune 0.5", min_steps=CLEAR),
        row("prune 0.8", tested=False),
        row("clip 1", min_steps=CLEAR),
    ]
    monkeypatch.setattr(page, "measured", lambda _: rows)
    expected = page.Expected(
        says="It is harder", quantity="min_steps", side="above 1", rows="prune"
    )
    data = page.Data(name="digits", where="known", baseline="sgd", quantities=("min_steps",))
    claim = page.Claim(title="Harder", claim="A claim.", expected=(expected,), data=(data,))
    text = page.page(page.Sections(claims=(claim,)))
    assert (
        "| data | It is harder (least steps: above 1) |\n|---|---|\n"
        "| digits | `prune 0.5` 2.0 [1.5, 2.7], *agrees*; "
        "`prune 0.8` 0.93 [0.62, 1.4], *not tested* |\n"
    ) in text
    options = "--baseline sgd --quantity min_steps"
    assert f'batchscale techniques own --where "known" {options}\n' in text
    with pytest.raises(ValueError, match="no row begins with 'ema'"):
        expected.model_copy(update={"rows": "ema"}).answers(rows)


@pytest.mark.slow
def test_the_page_is_as_it_would_be_written(page: Any) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.listed())
