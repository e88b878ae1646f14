"""A part that is measured again renews its own section of the page, and no other."""

from __future__ import annotations

from pathlib import Path

from benchmarks.page import HEAD, sections, table, write


def test_a_part_renews_its_own_section(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write(["a", "b"], {"b": "old b"}, page)
    write(["a", "b"], {"a": "first a"}, page)
    assert sections(page.read_text()) == {"a": "first a", "b": "old b"}
    write(["a", "b"], {"b": "new b"}, page)
    assert sections(page.read_text()) == {"a": "first a", "b": "new b"}
    assert page.read_text().startswith(HEAD)
    assert page.read_text().index("## a") < page.read_text().index("## b")


def test_a_table_is_markdown() -> None:
    rows: list[dict[str, object]] = [{"what": "x", "measured": "1 s", "wanted": ""}]
    assert table(rows) == "| what | measured | wanted |\n|---|---|---|\n| x | 1 s |  |\n"
