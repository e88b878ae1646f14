"""``regimes --read final`` without a target: curves ranked at each batch size, and its messages."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.analysis import seeded_losses as made
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "final.csv"
    made.table().to_csv(path, index=False)
    return path


def test_the_ranking_as_a_table(command: Command, file: Path) -> None:
    text = command("regimes", file, "--read", "final").out
    lines = text.splitlines()
    assert lines[0].startswith("final: validation_loss at a budget of 1.7e+09 tokens, the least")
    assert "at 5%, corrected for 12 comparisons" in lines[1]
    (row,) = (line for line in lines if line.strip().startswith("524288"))
    assert [row.split()[place] for place in (1, 5, 9)] == ["beta", "gamma", "alpha"]
    assert row.endswith("yes")
    assert "beta and gamma cross at batch size " in text
    assert "gamma is better below, beta above." in text
    best = "Best batch size of alpha: ≤ 524,000; of those tested 131,072 (the smallest)."
    assert best in lines
    assert "- one budget gives no steps at equal loss" in text


def test_a_target_of_one_budget_names_the_metric(command: Command, file: Path) -> None:
    frame = pd.read_csv(file)
    frame.assign(accuracy=1 - frame["validation_loss"] / 5).to_csv(file, index=False)
    answer = command("regimes", file, "--read", "final")
    clear(answer, "these runs have several metrics", hint="name one in --target: ")
    for target, better in (("validation_loss < 3.3", "least"), ("accuracy > 0.3", "largest")):
        text = command("regimes", file, "--read", "final", "--target", target).out
        assert f"{target.split()[0]} at a budget of 1.7e+09 tokens, the {better} first" in text


def test_the_other_formats(command: Command, file: Path) -> None:
    ask = ("regimes", file, "--read", "final", "--format")
    (answer,) = json.loads(command(*ask, "json").out)
    assert [row["best"] for row in answer["batch_sizes"]] == ["gamma", "beta", "beta", "beta"]
    header, *rows = command(*ask, "csv").out.splitlines()
    assert {"batch_size", "rank", "curve", "mean", "standard_error", "p"} < {*header.split(",")}
    assert len(rows) == 12
    assert command(*ask, "markdown").out.startswith("| batch size | best | second | third | best")


def test_what_cannot_be_told_is_said(command: Command, file: Path) -> None:
    made.table(seeds=1).to_csv(file, index=False)
    text = command("regimes", file, "--read", "final").out
    assert "- one run of each: which curve is better cannot be told from noise; run each" in text
    assert text.count("not known") == 4
    frame = made.table().astype({"validation_loss": object})
    frame.loc[frame.index[-1], "validation_loss"] = "DNF"
    frame.to_csv(file, index=False)
    text = command("regimes", file, "--read", "final").out
    assert "gamma failed (1 of 2)" in text
    made.table(noise=0.05).to_csv(file, index=False)
    assert "not from " in command("regimes", file, "--read", "final").out


@pytest.mark.parametrize(
    "other",
    [("--law", "width"), ("--baseline", "beta"), ("--definition", "zhang2024"), ("--form", "knee")],
)
def test_options_of_steps_are_refused(command: Command, file: Path, other: tuple[str, ...]) -> None:
    answer = command("regimes", file, "--read", "final", *other)
    clear(answer, f"{other[0]} is about the regimes at one loss", hint="it ranks the curves")


def test_without_the_option_it_is_named(command: Command, file: Path) -> None:
    clear(command("regimes", file), "these are final losses", hint="--read final ranks the curves")
