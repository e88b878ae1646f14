"""The section "Measured" of techniques.md: what its command writes, and that the page is so."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.docs.conftest import program
from validation.page import blocks

ROW = {
    "name": "clip 1",
    "baseline": "sgd",
    "sentence": "clip 1 over sgd: critical batch size 3.9 [3.4, 4.6] (p 0.001)",
    "notes": ["the ratio of perfect_scaling_until is open above"],
    "compared": 4,
    "tested": True,
}
SAME = [
    {**ROW, "name": name, "sentence": f"{name} cannot be distinguished from sgd (least p 1)"}
    for name in ("ema 0.9", "ema 0.99", "dropout 0.1")
]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    module: ModuleType = program("measured")
    return module


def test_each_claim_has_a_sentence_and_its_query(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, tuple[list[dict[str, Any]], str] | None] = {
        "known": ([ROW], "| the table |\n"),
        "absent": None,
    }
    monkeypatch.setattr(page, "measured", lambda claim: answers[claim.where])
    claims = [
        page.Claim(title=where, claim="A claim.", source="own", where=where, baseline="sgd")
        for where in answers
    ]
    text = page.text(claims)
    assert text.startswith("### known\n\nA claim.\n\n")
    assert "- Clip 1 over sgd: critical batch size 3.9 [3.4, 4.6] (p 0.001).\n" in text
    assert "- Clip 1: the ratio of perfect_scaling_until is open above.\n" in text
    assert 'batchscale techniques own --where "known" --baseline sgd\n' in text
    assert text.count("Not measured") == 1
    assert "| the table |" not in text


def test_a_screen_has_its_table_and_names_together_what_does_not_differ(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "measured", lambda _: ([ROW, *SAME], "| the table |\n"))
    claim = page.Claim(title="All", claim="A claim.", source="own", where="known", screens=True)
    text = page.text([claim])
    assert "| the table |\n" in text
    assert "- Clip 1 over sgd: critical batch size" in text
    assert "- Ema 0.9, ema 0.99 and dropout 0.1 cannot be distinguished from sgd.\n" in text
    assert "- The ratio of perfect_scaling_until is open above.\n" in text
    assert 'batchscale techniques own --where "known" --correction fdr\n' in text


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
    page: ModuleType,
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
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios = [
        {"value": 2.0, "low": 1.5, "high": 2.7, "p_corrected": 0.012},
        {"value": 0.93, "low": 0.62, "high": 1.4, "p_corrected": 1.0},
    ]
    rows = [
        {**SAME[0], "name": name, "ratios": {"min_steps": ratio}}
        for name, ratio in zip(("prune 0.5", "prune 0.8"), ratios, strict=True)
    ]
    rows[1]["tested"] = False
    rows.append({**SAME[0], "name": "clip 1", "ratios": {"min_steps": ratios[0]}})
    monkeypatch.setattr(page, "measured", lambda _: (rows, ""))
    expected = page.Expected(
        says="It is harder", quantity="min_steps", side="above 1", rows="prune"
    )
    claim = page.Claim(
        title="Harder", claim="A claim.", source="own", where="known", expected=(expected,)
    )
    assert (
        "\nOf the claim:\n\n- It is harder (least steps, expected above 1): "
        "prune 0.5 2.0 [1.5, 2.7], p 0.012: *agrees*; prune 0.8 0.93 [0.62, 1.4], p 1: "
        "*not tested*.\n"
    ) in page.text([claim])
    with pytest.raises(ValueError, match="no row begins with 'ema'"):
        expected.model_copy(update={"rows": "ema"}).sentence(rows)


def test_how_the_best_trials_repeat_is_one_note_of_a_screen(page: ModuleType) -> None:
    again = "trained again with fresh seeds, the best configuration takes {} times its best trial's"
    rows = [
        {"name": name, "notes": [again.format(times) + " steps (two)", "20 repeated runs are not"]}
        for name, times in (("clip 1", "1.20"), ("ema 0.9", "1.58"))
    ]
    assert [note.split(" times")[0] for note in page.limits(rows)] == [
        "clip 1: trained again with fresh seeds, the best configuration takes 1.20",
        "ema 0.9: trained again with fresh seeds, the best configuration takes 1.58",
    ]
    (note,) = page.limits(rows, together=True)
    assert "take 1.20 to 1.58 times their best trials' steps" in note


def test_every_claim_of_the_list_is_a_heading_of_the_page(page: ModuleType) -> None:
    made = blocks(page.PAGE.read_text(encoding="utf-8"))["measured"]
    titles = [line.removeprefix("### ") for line in made.splitlines() if line.startswith("### ")]
    assert titles == [claim.title for claim in page.claims()]


@pytest.mark.slow
def test_the_page_is_as_it_would_be_written(page: ModuleType) -> None:
    assert blocks(page.PAGE.read_text(encoding="utf-8"))["measured"] == page.text(page.claims())
