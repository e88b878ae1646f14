"""``batchscale branch``: what it trains, records, says and draws."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
from batchscale import branches as module
from batchscale.output.errors import CommandError
from experiments.config.compile import parse
from experiments.training import branches as training
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

EXPERIMENT = """\
name: one
workload: digits-softmax
grid: {batch_size: 8, optimizer: sgd}
search: {learning_rate: {log: [0.1, 0.3]}}
trials: 2
budget: 300 steps
target: validation_cross_entropy < 0.6
stop_at_target: false
engine: module
"""
GIVEN = ["--at", "40,120", "--by", "2,4", "--window", "64 steps"]
KEYWORDS: dict[str, Any] = {"at": [120, 40], "by": [4, 2], "window": "64 steps"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with an experiment of one study."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "one.yaml").write_text(EXPERIMENT)
    bs.sweep(folder / "one.yaml", results=folder / "runs", address="none")
    return folder / "runs"


@pytest.fixture
def runs(swept: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    from shutil import copytree

    return copytree(swept, tmp_path / "runs")


def best(runs: Path) -> pd.Series:
    trials = bs.open(runs).trials
    return trials[trials["role"] == "search"].sort_values("steps_to_target").iloc[0]


def test_it_goes_on_where_it_was_killed(
    runs: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with more seeds it trains these alone; without, nothing."""
    trained: list[str] = []

    def observed(text: str) -> None:
        trained.append(text)
        if len(trained) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bs.branch("one", **KEYWORDS, results=runs, observer=observed)
    assert len(trained) == 2
    made = bs.branch("one", **KEYWORDS, results=runs, observer=observed)
    assert len(trained) == len(set(trained)) == 6
    monkeypatch.setattr(training, "make_engine", None)
    again = bs.branch(best(runs)["trial"][:9], **KEYWORDS, results=runs, observer=observed)
    assert again.to_dict() == made.to_dict()
    monkeypatch.undo()
    assert len(trained) == 6
    bs.branch("one", **KEYWORDS, results=runs, seeds=4, observer=observed)
    assert trained[6:] == [f"{text.partition(':')[0]}: 1 seed" for text in trained[:6]]
    text = command("branch", "one", *GIVEN, "--seeds", 4, "--results", runs).out.splitlines()
    assert text[0].startswith("digits-softmax, sgd: validation_cross_entropy against batch size 8")
    assert [line.split()[0] for line in text[3:11]] == ["40"] * 4 + ["120"] * 4
    assert all(f"{n} steps ({8 * n:,} examples)" in text[2 + n // 16] for n in (16, 32, 48, 64))


def test_branches_are_rows_of_their_own(runs: Path, command: Command) -> None:
    """Whose measurements begin where the trial's are, and which no analysis takes for trials."""
    text = command("query", "SELECT * FROM best", runs, "--format", "csv").out
    plain = bs.open(runs).best
    bs.branch("one", **KEYWORDS, results=runs)
    opened = bs.open(runs)
    rows = opened.trials[opened.trials["role"] == "branch"]
    parent = best(runs)
    assert set(rows["experiment"]) == {"one-branches"}
    assert set(rows["branch_of"]) == {parent["trial"]}
    assert len(rows) == 2 * 3 * 3
    assert rows["seed"].nunique() == 1 + 2 * 2  # the trial's own, and two at each step
    sizes = [json.loads(cell) for cell in rows["batch_sizes"]]
    assert {(s["starts"][1], *s["sizes"]) for s in sizes} == {
        (step, 8, k * 8) for step in (40, 120) for k in (1, 2, 4)
    }
    assert {json.loads(cell).get("ramp") for cell in rows["technique"]} == {
        None,
        *(f"{k}x at {step / 300!r}, learning rate linear" for k in (2, 4) for step in (40, 120)),
    }
    pd.testing.assert_frame_equal(opened.best, plain)
    assert command("query", "SELECT * FROM best", runs, "--format", "csv").out == text
    assert command("fsck", runs).status == 0
    assert "branches" not in command("status", runs).out
    own = rows[
        rows["seed"].eq(parent["seed"]) & rows["batch_sizes"].str.contains("[8,8]", regex=False)
    ]
    measured = opened.measurements.set_index(["trial", "step"])["validation_cross_entropy"]
    of_parent = measured[parent["trial"]].index
    shared = [(trial, step) for trial in own["trial"] for step in of_parent
              if (trial, step) in measured.index]  # fmt: skip
    assert shared
    for trial, step in shared:
        assert measured[trial, step] == measured[parent["trial"], step]
    clear(command("trial", "--from", rows["trial"].iloc[0], "--results", runs), "is a branch of")


def test_its_formats_and_its_figure_say_the_same(
    runs: Path, command: Command, tmp_path: Path
) -> None:
    given = ["branch", "one", *GIVEN, "--results", runs, "--tolerance", "0.05"]
    answer = json.loads(command(*given, "--json", "-o", tmp_path / "made" / "b.png").out)
    made = bs.branch("one", **KEYWORDS, results=runs, tolerance="5 %")
    assert made.to_dict() == answer
    rows = command(*given, "--format", "csv").out.splitlines()
    assert len(rows) == 1 + len(answer["points"]) == 9
    assert (tmp_path / "made" / "b.png").stat().st_size > 10_000
    numbers = pd.read_csv(tmp_path / "made" / "b.csv")
    assert list(numbers["examples"]) == [320, 960]
    ends = [p["critical_batch_size"]["low"] for p in answer["points"][3::4]]
    assert list(numbers["critical_batch_size_low"].fillna(0)) == [end or 0 for end in ends]
    assert answer["learning_rate"] == "linear"


def test_the_ramp_proposed_is_one_of_an_experiment_file(runs: Path, command: Command) -> None:
    """It changes at the steps of --at, and has the steps that it says."""
    given = ["--at", "40,120", "--by", "2,4", "--window", "64 steps", "--tolerance", "0.5"]
    text = command("branch", "one", *given, "--results", runs).out
    ramp = bs.branch("one", **KEYWORDS, tolerance=0.5, results=runs).to_dict()["ramp"]
    assert ramp["changes"] == [[40, 4]]
    line = f"  batch_size: {ramp['batch_size']}"
    assert line in text.splitlines()
    assert line == "  batch_size: {from: 8, ramp: {at: [[0.133, 4]], learning_rate: linear}}"
    (study,) = parse(EXPERIMENT.replace("{batch_size: 8, ", f"{{{line.strip()}, ")).studies()
    assert study.ramp is not None
    assert study.ramp.starts == (0, 40)
    examples = ramp["steps"] * 8
    assert study.ramp.examples(ramp["ramp_steps"]) >= examples
    assert study.ramp.examples(ramp["ramp_steps"] - 1) < examples
    assert ramp["saves"] == 1 - ramp["ramp_steps"] / ramp["steps"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--at", "0"], "--at 0 are no steps"),
        (["--at", "forty"], "--at forty are no steps"),
        (["--by", "1,2"], "--by 1,2 are not whole numbers of at least 2"),
        (["--window", "few"], "'few' is not a sum of steps, examples and tokens"),
        (["--window", "3 examples"], "--window 3 examples is less than a step"),
        (["--window", "1e3 tokens"], "1000 tokens is in tokens, and the workload has no tokens"),
        (["--window", "500 steps"], "from step 40 a window of 500 steps is not within the budget"),
        (["--seeds", "0"], "--seeds 0 is below 1"),
        (["--tolerance", "1 step"], "--tolerance 1 step is no share of the metric or of the"),
        (["--tolerance", "0"], "--tolerance 0 is no share of the metric"),
        (["--tolerance", "1e999"], "--tolerance 1e999 is no share of the metric"),
        (["--rule", "root"], "there is no rule 'root'"),
        (["--metric", "validation_accuracy"], "of validation_accuracy more is better"),
        (["--metric", "validation_los"], "no metric 'validation_los' was measured"),
        (["--results", "own"], "branches are written beside their trial, and own is not written"),
    ],
)
def test_what_it_cannot_do_is_said(
    runs: Path, command: Command, changes: list[str], message: str
) -> None:
    given = {"--results": str(runs), **dict(zip(GIVEN[::2], GIVEN[1::2], strict=True))}
    given |= {"--seeds": "1", **dict(zip(changes[::2], changes[1::2], strict=True))}
    clear(command("branch", "one", *(part for pair in given.items() for part in pair)), message)


def test_a_metric_that_none_is_like_has_those_that_are(runs: Path, command: Command) -> None:
    said = command("branch", "one", *GIVEN, "--metric", "train_loss", "--results", runs)
    clear(said, "no metric 'train_loss' was measured", hint="measured: validation_cross_entropy, ")


def test_an_experiment_of_several_studies_or_without_a_hit(runs: Path, command: Command) -> None:
    trials = bs.open(runs).trials
    several = trials.assign(study=["a", "b"], steps_to_target=[9.0, 7.0])
    opened = SimpleNamespace(trials=several)
    with pytest.raises(CommandError, match="one has 2 studies, and branches are of one") as raised:
        module._best_of(opened, "one")  # type: ignore[arg-type]
    assert raised.value.hint == f"the best one at batch size 8: {trials['trial'][1]}"
    opened.trials = trials.assign(steps_to_target=None)
    with pytest.raises(CommandError, match="no trial of one reached its target"):
        module._best_of(opened, "one")  # type: ignore[arg-type]
    clear(command("branch", "three", *GIVEN, "--results", runs), "no trial of")
