"""``--unit`` on the command line: what regimes, plot, report and query say of sequences in tokens.

Every number is computed here by hand: tokens = sequences × context.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from results.store import Store
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
    store, trials, studies = Store(root), [], []
    for size, steps in STEPS.items():
        study = {
            "study": f"adamw-{size}", "workload": "letters", "dataset": "letters",
            "optimizer": "adamw", "schedule": "constant", "batch_size": size, **columns,
        }  # fmt: skip
        trials.append({
            **study, "trial": f"adamw-{size}-0", "role": "search", "index": 0, "seed": 0,
            "learning_rate": 0.01, "metaparameters": json.dumps({"learning_rate": 0.01}),
            "status": "COMPLETE", "stop_reason": "target", "target_metric": "validation_loss",
            "target_value": 2.0, "lower_is_better": True, "steps_to_target": float(steps),
            "last_miss": float(steps - 1), "steps_run": steps, "budget_steps": 1000,
        })  # fmt: skip
        studies.append({**study, "experiment": "e"})
    store.commit("e", measurements=[], trials=trials)
    store.add_studies(studies)
    return root


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("letters")
    return write(root / "runs", example_unit="sequence", tokens_per_example=CONTEXT)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pictures") / "runs", example_unit="image")


def test_regimes(command: Command, letters: Path) -> None:
    by_unit = {}
    for unit in ("tokens", "sequences", "examples", None):
        given = ("--unit", unit) if unit else ()
        answer = command("regimes", letters, *given, "--json")
        assert answer.status == 0, answer.err
        (by_unit[unit],) = json.loads(answer.out)
    tokens, sequences = by_unit["tokens"], by_unit["sequences"]
    assert sequences == by_unit["examples"] == by_unit[None]
    assert (tokens["example_unit"], sequences["example_unit"]) == ("token", "sequence")
    assert tokens["batch_sizes"] == list(TOKENS)
    assert sequences["batch_sizes"] == list(STEPS)
    assert {p["batch_size"]: p["examples"] for p in tokens["points"]} == TOKENS
    assert [p["steps"] for p in tokens["points"]] == list(STEPS.values())
    assert {p["batch_size"]: p["examples"] for p in sequences["points"]} == {
        b: b * s for b, s in STEPS.items()
    }
    for name in ("critical_batch_size", "min_examples"):
        in_tokens, plain = tokens[name], sequences[name]
        assert plain["high"] is not None or name == "critical_batch_size"
        for end in ("value", "low", "high"):
            if plain[end] is None:
                assert in_tokens[end] is None
            else:
                assert in_tokens[end] == pytest.approx(CONTEXT * plain[end], rel=1e-4)
    assert tokens["min_steps"]["high"] == pytest.approx(sequences["min_steps"]["high"], rel=1e-4)
    slopes = [each["slopes"]["first"]["value"] for each in (tokens, sequences)]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-4)


def test_the_table_of_regimes(command: Command, letters: Path) -> None:
    answer = command("regimes", letters, "--unit", "tokens")
    assert answer.status == 0, answer.err
    assert "96–6144 (4)" in answer.out
    assert "min tokens" in answer.out
    assert "batch sizes are of tokens" in answer.out
    assert "4–256 (4)" in command("regimes", letters).out


@pytest.mark.parametrize(
    ("unit", "figures", "expected"),
    [
        ("tokens", ("steps", "tradeoff"), TOKENS),
        ("sequences", ("steps",), {b: b * s for b, s in STEPS.items()}),
    ],
)
def test_plot(
    command: Command,
    here: Path,
    letters: Path,
    unit: str,
    figures: tuple[str, ...],
    expected: dict[int, int],
) -> None:
    for figure in figures:
        answer = command("plot", figure, letters, "--unit", unit, "-o", f"{figure}.svg")
        assert answer.status == 0, answer.err
        numbers = pd.read_csv(here / f"{figure}.csv")
        if "quantity" in numbers:
            numbers = numbers[numbers["quantity"].isna()]
        numbers = numbers.dropna(subset=["steps"])
        assert dict(zip(numbers["batch_size"], numbers["steps"], strict=True)) == dict(
            zip(expected, STEPS.values(), strict=True)
        )
        if "examples" in numbers:
            assert dict(zip(numbers["batch_size"], numbers["examples"], strict=True)) == expected


@pytest.mark.slow
def test_report(command: Command, here: Path, letters: Path) -> None:
    answer = command("report", letters, "--unit", "tokens", "-o", "report.html")
    assert answer.status == 0, answer.err
    page = (here / "report.html").read_text()
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page, flags=re.S)
    assert "min tokens" in page
    assert "tokens" in text
    assert "sequences" not in text
    assert "96" in text


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


COMMANDS = (
    ("regimes",),
    ("plot", "steps", "-o", "new.svg"),
    ("report", "-o", "new.html"),
)


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
