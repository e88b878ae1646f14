"""Odd experiment files: each works, or ends in one clear line with its place; none hangs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.fuzz import guard
from tests.fuzz.corpus import EXPERIMENTS
from tests.fuzz.guard import Outcome
from tests.test_imports import ROOT


@pytest.fixture(scope="module")
def corpus() -> dict[str, Outcome]:
    return guard.run("tests.fuzz.files", "corpus")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_worst_that_are_known(corpus: dict[str, Outcome], name: str) -> None:
    assert corpus[name].wrong is None
    assert (corpus[name].error or "").startswith("odd.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("how", [("random", 0, 250), ("generated", 120)], ids=lambda how: how[0])
def test_many(how: tuple[object, ...]) -> None:
    found = guard.run("tests.fuzz.files", *how)
    assert {name: each.wrong for name, each in found.items() if each.wrong} == {}
    assert len(found) >= 120
    works = sum(each.error is None for each in found.values())
    assert 0 < works < len(found)  # the generator makes both


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("two\nlines", None),
        ("fine", "two\nlines"),
        ("<object object at 0x7f>", None),
        ("Traceback (most recent call last)", None),
        ("", None),
    ],
)
def test_what_a_message_may_not_be(message: str, hint: str | None) -> None:
    assert guard.said_well(message, hint) is not None
    assert guard.said_well("odd.yaml:3: no key", "did you mean 'keep'?") is None


def test_an_error_that_is_not_clear_is_found() -> None:
    empty: dict[str, Any] = {}
    assert "no clear error: Traceback" in (guard.outcome("a", lambda: empty["a"]).wrong or "")


@pytest.mark.slow
def test_a_hang_ends_the_process_whatever_it_is_in() -> None:
    """Nothing of Python runs while a number of a billion digits is computed."""
    code = "from tests.fuzz import guard; guard.LIMIT = 1; guard.outcome('it', lambda: 7 ** 10**9)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert '"began": "it"' in done.stdout
