"""The section "Measured" of techniques.md: what its command writes, and that the page is so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = {
    "name": "clip 1",
    "baseline": "sgd",
    "sentence": "clip 1 over sgd: critical batch size 3.9 [3.4, 4.6] (p 0.001)",
    "notes": ["the ratio of perfect_scaling_until is open above"],
    "compared": 4,
}
SAME = [
    {**ROW, "name": name, "sentence": f"{name} cannot be distinguished from sgd (least p 1)"}
    for name in ("ema 0.9", "ema 0.99", "dropout 0.1")
]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measured_page", ROOT / "docs" / "measured.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses ask for it
    spec.loader.exec_module(module)
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
    text = page.renewed("# Techniques\n\n## Rules\n", claims)
    assert text.startswith("# Techniques\n\n## Rules\n\n## Measured\n\n")
    assert "- Clip 1 over sgd: critical batch size 3.9 [3.4, 4.6] (p 0.001).\n" in text
    assert "- Clip 1: the ratio of perfect_scaling_until is open above.\n" in text
    assert 'batchscale techniques own --where "known" --baseline sgd\n' in text
    assert text.count("Not measured") == 1
    assert "| the table |" not in text
    assert page.renewed(text, claims) == text
    assert page.renewed(text + "\n## Later\n", claims) == text + "\n## Later\n"


def test_a_screen_has_its_table_and_names_together_what_does_not_differ(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "measured", lambda _: ([ROW, *SAME], "| the table |\n"))
    claim = page.Claim(title="All", claim="A claim.", source="own", where="known", screens=True)
    text = page.renewed("# Techniques\n", [claim])
    assert "| the table |\n" in text
    assert "- Clip 1 over sgd: critical batch size" in text
    assert "- Ema 0.9, ema 0.99 and dropout 0.1 cannot be distinguished from sgd.\n" in text
    assert "- The ratio of perfect_scaling_until is open above.\n" in text
    assert 'batchscale techniques own --where "known" --correction fdr\n' in text


def test_the_page_has_every_claim(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert all(f"### {claim.title}\n\n{claim.claim}\n" in text for claim in page.CLAIMS)


@pytest.mark.slow
def test_the_page_is_as_it_would_be_written(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.renewed(text) == text
