"""The pages of every option and every column are those of the code."""

from __future__ import annotations

import pytest

from tests.docs.conftest import program


@pytest.mark.parametrize("page", ["commands.md", "schema.md"])
def test_a_reference_is_as_it_would_be_written(page: str) -> None:
    reference = program("reference")
    text = (reference.DOCS / page).read_text(encoding="utf-8")
    assert text == reference.renewed(page), "run `python docs/reference.py`"
