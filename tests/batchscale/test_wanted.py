"""``batchscale sweep --plan``: how many trials an interval of a wanted width needs."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

from batchscale.output.errors import CommandError
from batchscale.output.wanted_table import command as command_of
from batchscale.planning import wanted
from batchscale.planning.wanted import Want
from experiments.config.compile import load
from tests.batchscale.conftest import Command
from tests.experiments.test_stop import run

FILE = """\
name: knee
workload: digits-softmax
grid: {batch_size: 1..1024, optimizer: sgd}
search: {learning_rate: {linear: [0.05, 2.0]}}
trials: 64
budget: 2500 steps
target: validation_error < 0.05
evaluation_ratio: 1.1
engine: module
"""
WIDE = "critical_batch_size within 1.6"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "_SIMULATED", 10)
    monkeypatch.setattr(wanted, "_SEARCHES", (1,))


@pytest.fixture
def file(here: Path) -> str:
    (here / "knee.yaml").write_text(FILE)
    return "knee.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("critical_batch_size", "is not a quantity within a factor over 1"),
        ("critical_batch_size within 1", "is not a quantity within a factor over 1"),
        ("critical_batch within 1.3", "'critical_batch' is not a quantity of a curve"),
    ],
)
def test_a_want_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        Want.parse(text)


def test_a_want() -> None:
    assert Want.parse(" min_steps  within 1.25 ") == Want(quantity="min_steps", factor=1.25)


@pytest.mark.slow
def test_one_option_needs_the_other(command: Command, file: str) -> None:
    for options in (["--plan"], ["--want", WIDE]):
        answer = command("sweep", file, *options)
        assert answer.status == 1
        assert "--plan needs --want" in answer.err


@pytest.mark.slow
def test_a_pilot_gives_a_plan_and_nothing_is_trained(
    command: Command, file: str, here: Path
) -> None:
    assert run(here / "runs", trials=16, engine="module").complete
    before = sorted((here / "runs").rglob("*.parquet"))
    asked = ("sweep", file, "--results", "runs", "--plan", "--want", WIDE)
    text = command(*asked).out
    assert text.startswith("sgd: critical batch size within 1.6, from 16 recorded trials of each")
    assert "at most" not in text  # the time is that of the recorded trials
    (line,) = (line for line in text.splitlines() if line.startswith("→") or " → " in line)
    assert "next: batchscale sweep knee.yaml --set " in text
    rows = json.loads(command(*asked, "--json").out)
    (chosen,) = (row for row in rows if row["chosen"])
    assert chosen["share_within"] >= 0.8
    assert chosen["width"] <= 1.6
    assert chosen["trained"] == len(chosen["batch_sizes"]) * chosen["trials"]
    assert f"{chosen['trained']}" in line
    assert [row["trained"] for row in rows] == sorted(row["trained"] for row in rows)
    assert sorted((here / "runs").rglob("*.parquet")) == before


@pytest.mark.slow
def test_without_a_pilot_packaged_curves_say_what_nothing_reaches(
    command: Command, file: str, here: Path
) -> None:
    narrow = "critical_batch_size within 1.01"
    text = command("sweep", file, "--results", "none", "--plan", "--want", narrow).out
    assert "from packaged curves (own, published)" in text
    assert "nothing here is expected to be within 1.01: the largest gives " in text
    assert "at most" in text
    assert not (here / "none").exists()


@pytest.mark.slow
def test_two_batch_sizes_are_refused(command: Command, file: str) -> None:
    few = ("--set", "grid.batch_size=[8, 64]")
    answer = command("sweep", file, "--plan", "--want", WIDE, *few)
    assert answer.status == 1
    assert "sgd: a curve of fewer than three batch sizes" in answer.err


def test_the_command_of_a_design_is_one_that_loads(here: Path, file: str) -> None:
    from analysis.widths.expected import Design, Expected

    design = Design(batch_sizes=(2, 8, 32), trials=16, searches=3)
    chosen = Expected(design=design, factor=1.2, low=1.1, high=math.inf, share=0.9, open=0)
    words = command_of(chosen, file, (2, 4, 8, 32))
    assert words.startswith("batchscale sweep knee.yaml --set ")
    settings = [word for word in shlex.split(words)[3:] if word != "--set"]
    studies = load(here / file, settings).studies()
    assert sorted({study.batch_size for study in studies}) == [2, 8, 32]
    assert {study.trials for study in studies} == {16}
    assert {study.replicate for study in studies} == {0, 1, 2}
