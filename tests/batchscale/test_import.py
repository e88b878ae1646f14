"""``batchscale import`` and ``published`` as a SOURCE, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

POINTS = "bs,iters\n8,100\n16,55\n32,40\n64,36\n"


@pytest.fixture
def points(here: Path) -> Path:
    (here / "mine.csv").write_text(POINTS)
    return here / "mine.csv"


@pytest.mark.usefixtures("points")
def test_import_csv_and_again(command: Command) -> None:
    words = ["import", "csv", "mine.csv", "--map", "batch_size=bs", "--map", "steps=iters"]
    done = command(*words, "--results", "runs")
    assert done.status == 0
    assert done.out == "imported 4 trials of 4 studies into runs as experiment mine\n"
    again = command(*words, "--results", "runs")
    assert again.out == "runs has these 4 trials of 4 studies already, as experiment mine\n"
    (curve,) = json.loads(command("regimes", "runs", "--json").out)
    assert curve["source"] == "mine"
    assert curve["batch_sizes"] == [8, 16, 32, 64]
    assert command("status", "runs").status == 0


def test_import_goes_to_the_default_folder(command: Command, points: Path) -> None:
    words = ["--map", "batch_size=bs", "--map", "steps=iters", "--name", "x", "--licence", "CC0"]
    done = command("import", "csv", points, *words, "--citation", "me")
    assert done.out == "imported 4 trials of 4 studies into results/runs as experiment x\n"
    assert bs.open("results/runs").sources.licence.tolist() == ["CC0"]


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["lgo", "mine.csv"], "no import of 'lgo'", "did you mean log?"),
        (["csv", "mine.csv", "--map", "steps"], "--map steps is not NAME=THEIRS", "batch_size=bs"),
        (["csv", "mine.csv", "--map", "steps="], "--map steps= is not", "batch_size=bs"),
        (["csv", "mine.csv", "--map", "steps=a", "--map", "steps=b"], "gives steps twice", "once"),
        (["csv", "mine.csv", "--map", "steps=itesr"], "no column 'itesr'", "steps=iters?"),
        (["csv", "mine.csv"], "mine.csv has no metric besides step", "--map steps=iters"),
        (["csv", "none.csv"], "there is no file none.csv", "a CSV, JSON Lines or Parquet file"),
        (["shallue", ".", "--licence", "MIT"], "has no option --licence", "leave it out"),
        (["mine.csv", "more.csv"], "takes one PATH: mine.csv more.csv", "a folder"),
        (["."], ". has no metric besides step", "--map steps=iters"),
    ],
)
def test_wrong_words_are_one_line(
    command: Command, here: Path, points: Path, words: list[str], says: str, hint: str | None
) -> None:
    clear(command("import", *words, "--results", "runs"), says, hint=hint)
    assert points.read_text() == POINTS
    assert [path.name for path in here.iterdir()] == ["mine.csv"]


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    """The regimes of all that is published, a row a curve."""
    return pd.DataFrame(bs.regimes("published"))


@pytest.mark.slow
def test_every_published_curve_comes_out(found: pd.DataFrame) -> None:
    assert dict(found["source"].value_counts()) == {
        "mlperf_rcp": 21, "shallue_2019_digitized": 7, "zhang_2024": 3,
    }  # fmt: skip
    unfitted = found[found["best"].isna()]
    columns = unfitted["workload"], unfitted["submitter"].fillna(""), unfitted["notes"]
    why = {(workload, who): notes[0] for workload, who, notes in zip(*columns, strict=True)}
    assert why == {
        (workload, submitter): f"{few} steps, and the regimes need three"
        for workload, submitter, few in (
            ("dlrm_dcnv2", "Cisco", "one batch size has"),
            ("gnn", "Intel", "one batch size has"),
            ("cosmoflow", "", "two batch sizes have"),
            ("openfold", "", "two batch sizes have"),
        )
    }


@pytest.mark.slow
def test_submitters_of_one_benchmark_are_not_joined(found: pd.DataFrame) -> None:
    """Joined, the ten batch sizes of two who ran resnet had no perfect scaling: a step from the
    one's points to the other's."""
    resnet = found[found["workload"] == "resnet"].set_index("submitter")
    assert resnet["batch_sizes"].map(len).to_dict() == {"NVIDIA": 6, "Google": 4}
    assert not any("no perfect scaling" in note for notes in resnet["notes"] for note in notes)


@pytest.mark.slow
def test_what_cannot_be_said_is_said(found: pd.DataFrame) -> None:
    said = {
        workload: " ".join(notes)
        for workload, notes in zip(found["workload"], found["notes"], strict=True)
    }
    assert "epochs / batch size" in said["gnn"]
    assert "number from memory" in said["dlrm"]
    assert "1 of the runs at batch size 3072" in said["gpt3"]
    for few in ("deepseekv3_671b", "qwen35_397b_grpo"):
        assert "too few to say where a regime ends" in said[few]
    changed = found[found["recipe"] == "changed"].iloc[0]
    assert changed["batch_sizes"] == [32, 64]
    assert "these batch sizes were run with changed hyperparameters" in changed["notes"]


@pytest.mark.slow
def test_published_wherever_a_source_is_asked_for(command: Command, here: Path) -> None:
    where = ["--where", "source = 'shallue_2019_digitized' AND dataset = 'cifar10'"]
    table = command("regimes", "published", *where)
    assert table.status == 0
    assert "nesterov" in table.out
    drawn = command("plot", "steps", "published", *where, "-o", "steps.pdf")
    assert drawn.status == 0
    assert (here / "steps.csv").is_file()
    asked = command("query", "SELECT source, licence FROM sources ORDER BY source", "published")
    assert "MIT" in asked.out
    assert command("status", "published").status == 0
    assert len(bs.open("published").trials) == 2056


@pytest.mark.slow
def test_published_beside_points_of_ones_own(command: Command, here: Path) -> None:
    (here / "own.csv").write_text(
        "batch_size,steps,workload,dataset,model,optimizer,target\n"
        + "".join(
            f"{2**k},{4000 + 240000 // 2**k},cifar10-resnet8,cifar10,resnet8,sgd,"
            "validation_error < 0.3\n"
            for k in range(1, 12)
        )
    )
    answer = command(
        "regimes", "own.csv", "published", "--json", "--where", "workload = 'cifar10-resnet8'"
    )
    curves = json.loads(answer.out)
    assert [curve["source"] for curve in curves] == [
        None, "shallue_2019_digitized", "shallue_2019_digitized",
    ]  # fmt: skip
    table = command(
        "regimes", "own.csv", "published", "--where", "workload = 'cifar10-resnet8'"
    ).out.splitlines()
    assert sum(line.startswith("own  ") for line in table) == 1
    said = [line for line in table if "read off a figure" in line]
    assert said[0].startswith("- source shallue_2019_digitized, nesterov: read off")


def test_targets_that_differ_are_a_column(command: Command) -> None:
    text = command("regimes", "published", "--where", "source = 'zhang_2024'").out
    assert text.startswith("source zhang_2024, dataset c4\n")
    assert "validation_cross_entropy < 2.92" in text
    assert "target of the source" not in text
