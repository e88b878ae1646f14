"""The ten questions of docs/findings/data.md, asked again."""

from __future__ import annotations

from validation import questions
from validation.page import blocks


def test_the_page_has_the_present_answers() -> None:
    text = questions.PAGE.read_text(encoding="utf-8")
    (made,) = questions.tables().values()
    assert made.count("```sh\n") == 10
    assert blocks(text) == {"questions": made.strip()}
