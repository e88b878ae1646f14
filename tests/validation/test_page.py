"""What is made of a page is renewed, and nothing else; the pages of findings are not behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.__main__ import EXACT
from validation.page import PAGE, blocks, renew

TEXT = (
    "# A\n\nBy hand.\n\n<!-- made: a -->\n\nold a\n\n<!-- end -->\n\n## B\n"
    "<!-- made: b -->\n<!-- end -->\nLast.\n"
)


def test_a_part_is_renewed_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    renew({"b": "| x |\n"}, page)
    renew({"a": "new a"}, page)
    renew({"a": "new a"}, page)
    text = page.read_text()
    assert blocks(text) == {"a": "new a", "b": "| x |"}
    assert text.startswith("# A\n\nBy hand.\n\n<!-- made: a -->\n\nnew a\n\n<!-- end -->\n\n## B\n")
    assert text.endswith("\n<!-- end -->\nLast.\n")


def test_a_part_without_a_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    with pytest.raises(ValueError, match=r"page\.md has no place for 'c'"):
        renew({"c": "x"}, page)
    assert page.read_text() == TEXT


@pytest.mark.slow
@pytest.mark.parametrize("part", [part for part, (_, page) in EXACT.items() if page != PAGE])
def test_a_page_has_the_present_tables(part: str) -> None:
    tables, page = EXACT[part]
    made = {name: table.strip() for name, table in tables().items()}
    assert blocks(page.read_text(encoding="utf-8")) == made
