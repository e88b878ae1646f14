"""``--unit`` on the command line, and SQL of sequences in tokens.

That every number in tokens is that in examples times tokens: ``tests/analysis/test_tokens.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.store import Store
from tests import reported
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

CONTEXT = 24
"""Tokens of a sequence: no power of two, as the batch sizes are."""
STEPS = {4: 660, 16: 210, 64: 98, 256: 69}
"""Steps to target of batch sizes in sequences: about 60 · (1 + 40 / B)."""
TOKENS = {96: 63_360, 384: 80_640, 1536: 150_528, 6144: 423_936}
"""Tokens a batch and tokens to target: 4 · 24 and 96 · 660, and so on."""


def write(root: Path, **columns: object) -> Path:
    """A trial for each batch size, of one optimizer."""
    store = Store(root)
    for size, steps in STEPS.items():
        study = {**reported.study_row("adamw", size), "workload": "letters", **columns}
        store.add_studies([{"experiment": "e", **study}])
        row = reported.trial_row(study, 0, 0.01, steps, steps - 1)
        store.commit("e", measurements=[], trials=[row])
    return root


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("letters")
    return write(root / "runs", example_unit="sequence", tokens_per_example=CONTEXT)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pictures") / "runs", example_unit="image")


def test_query_has_both_factors(command: Command, letters: Path) -> None:
    """SQL counts in sequences, as recorded; a product is the number of tokens."""
    sql = (
        "SELECT batch_size * tokens_per_example AS tokens, "
        "steps_to_target * batch_size * tokens_per_example AS to_target, example_unit "
        "FROM trials ORDER BY 1"
    )
    answer = command("query", sql, letters, "--json")
    assert answer.status == 0, answer.err
    rows = json.loads(answer.out)
    assert {row["tokens"]: row["to_target"] for row in rows} == TOKENS
    assert {row["example_unit"] for row in rows} == {"sequence"}


COMMANDS = (("regimes",), ("plot", "steps", "-o", "new.svg"), ("report", "-o", "new.html"))


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize(
    ("unit", "images", "part", "hint"),
    [
        ("token", False, "no unit 'token'", "did you mean tokens"),
        ("steps", False, "steps are not a unit of batch sizes", "tokens"),
        ("tokens", True, "4 trials of letters cannot be counted in tokens", "--where"),
        ("sequences", True, "4 trials of letters cannot be counted in sequences", "--where"),
    ],
)
def test_a_unit_that_cannot_be(
    command: Command,
    here: Path,
    letters: Path,
    pictures: Path,
    arguments: tuple[str, ...],
    unit: str,
    images: bool,
    part: str,
    hint: str,
) -> None:
    source = pictures if images else letters
    answer = command(*arguments, source, "--unit", unit)
    clear(answer, part, hint=hint)
    assert not list(here.iterdir())
