"""``import csv``: columns by other names, rows without a place, twice the same, and never half."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import results
from results.errors import ResultsError
from results.extensions import IMPORTS
from results.imports import commit_import
from results.storage.location import Location
from tests.results import synthetic

POINTS = "bs,iters,optimizer,note\n8,100,sgd,a\n8,90,sgd,b\n16,50,sgd,c\n32,40.5,sgd,d\n"
MAP = {"batch_size": "bs", "steps": "iters"}


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(POINTS)
    return path


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_columns_by_other_names(points: Path, tmp_path: Path) -> None:
    done = IMPORTS.get("log")(points, tmp_path / "runs", columns=MAP, citation="me", licence="CC0")
    assert (done.experiment, done.trials, done.studies, done.fresh) == ("mine", 4, 3, True)
    run = results.open(tmp_path / "runs")
    assert run.trials.steps_to_target.tolist() == [100.0, 90.0, 50.0, 40.5]
    assert run.trials.batch_size.tolist() == [8, 8, 16, 32]
    assert set(run.trials.role) == {"repeat"}
    assert set(run.trials.source) == set(run.trials.experiment) == {"mine"}
    assert json.loads(run.trials.as_published[1]) == {
        "bs": "8", "iters": "90", "optimizer": "sgd", "note": "b",
    }  # fmt: skip
    assert set(run.trials.study) == set(run.studies.study)
    source = run.sources.iloc[0]
    assert source[["source", "citation", "licence"]].tolist() == ["mine", "me", "CC0"]
    assert source["address"] == str(points)
    assert source["checksum"].startswith("sha256:")
    assert source["notes"] == "batch_size is its bs, steps is its iters"


def test_a_column_source_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("batch_size,steps,source\n8,10,a\n8,12,b\n16,6,\n")
    IMPORTS.get("log")(path, tmp_path / "runs")
    run = results.open(tmp_path / "runs")
    assert run.trials.source.tolist() == ["a", "b", "mine"]
    assert sorted(run.sources.source) == ["a", "b", "mine"]
    assert run.studies.set_index("study").loc[run.trials.study].source.tolist() == [
        "a",
        "b",
        "mine",
    ]


def test_the_same_again_does_nothing(points: Path, tmp_path: Path) -> None:
    IMPORTS.get("log")(points, tmp_path / "runs", columns=MAP)
    before = files(tmp_path / "runs")
    assert IMPORTS.get("log")(points, tmp_path / "runs", columns=MAP).fresh is False
    assert files(tmp_path / "runs") == before


def test_other_rows_take_the_place_of_the_earlier_ones(points: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    IMPORTS.get("log")(points, root, columns=MAP)
    points.write_text("bs,iters\n8,70\n64,9\n")
    assert IMPORTS.get("log")(points, root, columns=MAP).fresh is True
    run = results.open(root)
    assert run.trials.steps_to_target.tolist() == [70.0, 9.0]
    assert len(run.studies) == 2
    assert len(run.sources) == 1
    assert len(list(root.glob("*/mine/*.parquet"))) == 3


def test_two_files_and_a_sweep_lie_side_by_side(points: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    synthetic.write(root)
    IMPORTS.get("log")(points, root, columns=MAP)
    IMPORTS.get("log")(points, root, columns=MAP, name="again")
    trials = results.open(root).trials
    assert len(trials) == 48 + 4 + 4
    assert trials.trial.is_unique
    results.Store(root).compact()
    assert len(results.open(root).trials) == 56


def test_the_names_of_runs_may_continue_those_of_experiments(tmp_path: Path) -> None:
    """The trials of gpt were lost: gpt-small-0 was the name of both."""
    for name, run in (("gpt", "small-0"), ("gpt-small", "0")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"run,batch_size,step,val_loss\n{run},8,1,3.0\n{run},8,2,2.5\n")
        IMPORTS.get("log")(path, tmp_path / "runs")
    assert sorted(results.open(tmp_path / "runs").trials.experiment) == ["gpt", "gpt-small"]


def test_a_trial_of_another_experiment_is_not_taken(points: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    IMPORTS.get("log")(points, root, columns=MAP)
    before, (trial, *_) = files(root), results.open(root).trials.trial
    row = {"study": "a", "trial": trial, "batch_size": 8, "role": "repeat", "status": "COMPLETE"}
    with pytest.raises(ResultsError, match=r"is in another experiment of .*, and would be lost"):
        commit_import(root, experiment="ours", sources=[], studies=[], trials=[row])
    assert files(root) == before


def test_a_sweep_is_never_replaced(points: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    synthetic.write(root)
    before = files(root)
    with pytest.raises(ResultsError, match=r"'synthetic' of .* was not imported") as caught:
        IMPORTS.get("log")(points, root, columns=MAP, name="synthetic")
    assert caught.value.hint == "import under another name: --name NAME"
    assert files(root) == before


def test_another_file_of_that_name_is_refused(points: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    IMPORTS.get("log")(points, root, columns=MAP)
    before = files(root)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "mine.csv"
    other.write_text(POINTS.replace("90", "91"))
    with pytest.raises(ResultsError, match=r"was imported from .*mine\.csv, and is left"):
        IMPORTS.get("log")(other, root, columns=MAP)
    assert files(root) == before


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("at", ["sources", "studies", "trials"])
def test_a_disk_that_refuses_leaves_all_or_nothing(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, again: bool
) -> None:
    """Whatever write fails, the trials are those of before, and the same command mends it."""
    root = tmp_path / "runs"
    before: list[float] = []
    if again:
        IMPORTS.get("log")(points, root, columns=MAP)
        before = results.open(root).trials.steps_to_target.tolist()
        points.write_text(POINTS.replace("90", "91"))
    write = Location.write

    def refuse(self: Location, name: str, data: bytes) -> None:
        if name.startswith(at):
            raise ResultsError("cannot write: the disk is full")
        write(self, name, data)

    monkeypatch.setattr(Location, "write", refuse)
    with pytest.raises(ResultsError, match="disk is full"):
        IMPORTS.get("log")(points, root, columns=MAP)
    found = results.open(root).trials.steps_to_target.tolist()
    # Sources follow the trials where there were some: those are the new ones then.
    assert found == ([100.0, 91.0, 50.0, 40.5] if again and at == "sources" else before)
    monkeypatch.setattr(Location, "write", write)
    assert IMPORTS.get("log")(points, root, columns=MAP).fresh
    wanted = [100.0, 91.0 if again else 90.0, 50.0, 40.5]
    assert results.open(root).trials.steps_to_target.tolist() == wanted
    assert len(list(root.glob("trials/mine/*.parquet"))) == 1


@pytest.mark.parametrize(
    ("text", "columns", "says", "hint"),
    [
        (
            "bs,iters\n8,10\n16,many\n",
            MAP,
            "line 3: steps is 'many', not a number",
            "correct or remove that row",
        ),
        ("bs,iters\n8,10\n", {"batch_size": "b"}, "has no column 'b' to read as", None),
        ("bs,iters\n8,10\n", {"steps": "itres"}, "has no column 'itres'", "steps=iters?"),
        (
            "bs,iters\n8,10\n",
            {"batch_size": "bs"},
            "has no metric besides step",
            "--map steps=iters",
        ),
        (
            "bs,iters,steps\n8,10,9\n",
            MAP,
            "would have two columns 'steps': 'iters' and 'steps'",
            "steps_old=steps",
        ),
        ("bs,iters\n8,10\n", {**MAP, "step": "iters"}, "column 'iters' of", "name it once"),
        ("bs,iters,study\n8,10,x\n", MAP, "a column 'study', a name that the", "--map study"),
    ],
)
def test_rows_without_a_place_are_named_and_nothing_is_written(
    tmp_path: Path, text: str, columns: dict[str, str], says: str, hint: str | None
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ResultsError) as caught:
        IMPORTS.get("log")(path, tmp_path / "runs", columns=columns)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert hint is None or hint in str(caught.value.hint)
    assert not (tmp_path / "runs").exists()


def test_columns_may_change_places(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("batch_size,steps,iters\n8,1,100\n16,2,60\n")
    IMPORTS.get("log")(path, tmp_path / "runs", columns={"steps": "iters", "evaluations": "steps"})
    assert results.open(tmp_path / "runs").trials.steps_to_target.tolist() == [100.0, 60.0]


def test_names_that_cannot_be(points: Path, tmp_path: Path) -> None:
    spaced = points.rename(tmp_path / "my curves.csv")
    with pytest.raises(ResultsError, match="'my curves' cannot name a folder") as caught:
        IMPORTS.get("log")(spaced, tmp_path / "runs", columns=MAP)
    assert "--name NAME" in str(caught.value.hint)
    assert (
        IMPORTS.get("log")(spaced, tmp_path / "runs", columns=MAP, name="mine").experiment == "mine"
    )
    with pytest.raises(ResultsError, match="there is no file"):
        IMPORTS.get("log")(tmp_path / "none.csv", tmp_path / "runs")


def test_kinds(points: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no import of 'cvs'") as caught:
        IMPORTS.get("cvs")(points, tmp_path / "runs")
    assert caught.value.hint == "one of log, shallue; or file.py:Name"
    with pytest.raises(ResultsError, match="import shallue has no option --licence"):
        IMPORTS.get("shallue")(tmp_path, tmp_path / "runs", licence="MIT")
    assert not (tmp_path / "runs").exists()
