"""What is made of a page is renewed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.page import blocks, renew

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
