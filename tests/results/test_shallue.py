"""The release of Shallue et al. 2019: a tree in its layout, read whole, by pieces, and broken."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results
from results.errors import ResultsError
from results.imports import Imported, shallue
from results.storage.location import Location
from tests.marks import quick
from tests.results import release
from tests.results.release import CNN, FC, HALF, IMAGES, QUALITY, WORDS, ReleasedStudy
from tests.results.synthetic import claimed


def _import(tree: Path) -> tuple[results.Results, Imported]:
    root = tree.parent / "runs"
    done = shallue.import_shallue(tree, root)
    return results.open(root), done


def _plain(tree: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(tree / name / "measurements.csv")


def test_every_trial_and_measurement_arrives(tree: Path) -> None:
    run, done = _import(tree)
    assert (done.studies, done.added, done.measurements, done.recorded) == (12, 60, 756, 0)
    assert done.refused == done.ignored == []
    assert len(run.studies) == 12
    trials, points = run.trials, run.measurements
    assert len(trials) == 60
    assert set(trials.role) == {"search"}
    trial: Any
    for trial in trials.itertuples():
        name = trial.trial.removeprefix("shallue_2019/")
        plain = _plain(tree, name)
        own = points[points.trial == trial.trial].reset_index(drop=True)
        assert own.step.tolist() == plain.step.tolist()
        assert own.examples.tolist() == [step * trial.batch_size for step in plain.step]
        assert set(own.study) == {trial.study}
        for column in plain.columns[1:]:
            split, metric = column.split("/")
            split = "validation" if split == "val" else split
            if metric == "average_precision":
                texts = own.metrics.map(json.loads)
                found = texts.map(lambda cell, key=f"{split}_{metric}": float(cell[key]))
            else:
                found = own[
                    f"{split}_{metric.removesuffix('_error').replace('classification', 'error')}"
                ]
            pd.testing.assert_series_equal(found, plain[column], check_names=False)


def test_the_columns_of_a_trial(tree: Path) -> None:
    run, _ = _import(tree)
    trials = run.trials.set_index("trial")
    row = trials.loc[f"shallue_2019/{HALF}/64/3"]
    metadata = json.loads((tree / HALF / "64" / "3" / "metadata.json").read_text())
    used = metadata["parameters"]
    assert row["learning_rate"] == used["learning_rate"]
    assert row["effective_learning_rate"] == used["learning_rate"] / (1 - used["momentum"])
    assert row["decay_steps"] == used["learning_rate_decay_steps"]
    assert row["end_factor"] == used["end_learning_rate_factor"]
    assert row["label_smoothing"] == used["label_smoothing"]
    assert json.loads(str(row["metaparameters"])).keys() == {
        *("learning_rate", "momentum", "decay_steps", "end_factor", "label_smoothing")
    }
    names = ["source", "dataset", "model", "optimizer", "schedule", "workload", "collection"]
    assert list(row[names]) == [
        *("shallue_2019", "imagenet-half-images", "resnet-50", "nesterov", "linear"),
        *("imagenet-half-images-resnet-50", "imagenet_subsets"),
    ]
    assert (row["index"], row["steps_run"]) == (3, metadata["steps"])
    assert row["examples_run"] == 64 * metadata["steps"]
    plain = trials.loc[f"shallue_2019/{FC}/128/1"]
    assert plain["effective_learning_rate"] == plain["learning_rate"]
    assert plain["schedule"] == "constant"
    assert trials.groupby("status")["stop_reason"].unique().map(list).to_dict() == {
        "COMPLETE": ["budget"],
        "INCOMPLETE": ["error"],
        "INFEASIBLE": ["diverged"],
    }
    assert trials["steps_to_target"].isna().all()


def test_the_studies_and_their_source(tree: Path) -> None:
    run, _ = _import(tree)
    studies = run.studies.set_index("study")
    row = studies.loc[f"shallue_2019/{HALF}/64"]
    assert json.loads(str(row["search_space"])) == {
        "learning_rate": {"log": [1e-4, 10.0]},
        "momentum": {"reverse_log": [0.9, 0.9999]},
        "decay": {"linear": [0.5, 1.0]},
        "end_factor": {"log": [1e-4, 0.1]},
        "label_smoothing": {"discrete": [0.0, 0.01, 0.1]},
    }
    assert (row["dimensions"], row["budget_steps"], row["trials_wanted"]) == (5, 100_000, 100)
    assert pd.isna(row["targets"])
    timed = studies.loc[f"shallue_2019/{FC}/64"]
    assert math.isnan(timed["budget_steps"])
    assert timed["budget"] == "a time budget"
    assert json.loads(timed["targets"]) == ["validation_error < 0.03"]
    assert studies.loc[f"shallue_2019/{WORDS}/64", "trials_wanted"] == 50
    images = studies.loc[f"shallue_2019/{IMAGES}/64", "targets"]
    assert json.loads(images) == ["validation_average_precision > 0.31"]
    assert len(run.sources) == 6
    source = run.sources.iloc[0]
    assert source["checksum"].startswith("sha256:6460ab86")
    assert source["licence"].startswith("Apache-2.0")


def test_steps_to_a_goal_are_the_authors_own(tree: Path) -> None:
    """Their way: COMPLETE trials by (step, id), the first that is strictly better."""
    run, _ = _import(tree)
    goals = {f"shallue_2019-{CNN}".replace("/", "-"): "validation_error < 0.05"}
    goals[f"shallue_2019-{IMAGES}".replace("/", "-")] = "validation_average_precision > 0.2"
    found = run.with_target(goals).trials
    assert found.steps_to_target.notna().sum() > 6
    for name, column, goal, sign in (
        (CNN, "val/classification_error", 0.05, 1),
        (IMAGES, "val/average_precision", 0.2, -1),
    ):
        for size in (64, 128):
            tables = []
            for trial in range(1, 6):
                own = tree / name / str(size) / str(trial)
                status = json.loads((own / "metadata.json").read_text())["status"]
                if status == "COMPLETE":
                    tables.append(pd.read_csv(own / "measurements.csv").assign(trial=trial))
            every = pd.concat(tables).sort_values(["step", "trial"])
            best = every[sign * every[column] < sign * goal].iloc[0]
            mine = found[found.study == f"shallue_2019/{name}/{size}"]
            assert mine.steps_to_target.min() == best.step


def test_without_another_target_a_trial_is_taken_at_its_studys_goal(tree: Path) -> None:
    run, _ = _import(tree)
    found = run.at_goals()
    assert found.trials.trial.tolist() == run.trials.trial.tolist()
    experiments = found.trials.experiment.str.removeprefix("shallue_2019-")
    goals = found.trials.groupby(experiments).target_value.unique().map(list).to_dict()
    names = {name: name.replace("/", "-") for name in (CNN, QUALITY, HALF, IMAGES, WORDS, FC)}
    assert goals[names[CNN]] == [0.01]
    assert goals[names[FC]] == [0.03]
    assert goals[names[IMAGES]] == [0.31]
    assert goals[names[WORDS]] == [3.9]
    # The goals of the sub-trees are not known: their trials stay as they are.
    assert all(math.isnan(goals[names[name]][0]) for name in (QUALITY, HALF))
    assert found.at_goals() is found
    same = run.where(f"experiment = 'shallue_2019-{names[WORDS]}'")
    by_hand = same.with_target("validation_cross_entropy < 3.9").trials
    pd.testing.assert_frame_equal(same.at_goals().trials, by_hand)


def test_collections_are_curves_of_their_own(tree: Path) -> None:
    import analysis

    run, _ = _import(tree)
    own = run.where("workload = 'mnist-simple-cnn'")
    found = own.with_target("validation_error < 0.05")
    curves = analysis.curves(found.trials, studies=found.studies, by=["optimizer"])
    assert [curve.group["collection"] for curve in curves] == [None, "solution_quality"]
    assert [curve.batch_sizes for curve in curves] == [[64, 128], [64, 128]]
    assert [curve.label for curve in curves] == ["nesterov", "solution_quality"]


def test_the_papers_trials_are_round_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.imports.support.shallue_facts.TRIALS", 3)
    tree = tmp_path / "batch_science"
    release.write(tree, [ReleasedStudy(name=f"{CNN}/64", batch_size=64, rows=(4,) * 11)])
    # COMPLETE are 1, 2, 4, 6, 7, 9, 11.
    run, _ = _import(tree)
    assert run.trials[run.trials["round"] == 0]["index"].tolist() == [1, 2, 3, 4]
    assert len(run.trials) == 11
    # The same when the first of them were imported before.
    shutil.rmtree(tmp_path / "runs")
    later = [tree / CNN / "64" / str(trial) for trial in range(3, 12)]
    for trial in later:
        trial.rename(tmp_path / trial.name)
    _import(tree)
    for trial in later:
        (tmp_path / trial.name).rename(trial)
    run, done = _import(tree)
    assert (done.recorded, done.added) == (2, 9)
    again = run.trials.sort_values("index")
    assert again[again["round"] == 0]["index"].tolist() == [1, 2, 3, 4]


class _Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "writes",
    quick([1, 3, 15, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 6, 26))], 1),
)
def test_killed_anywhere_the_same_command_does_the_rest(
    tree: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed at a write: what was committed is whole, and nothing comes twice."""
    monkeypatch.setattr("results.imports.shallue._BYTES", 2000)
    root, count, plain = tree.parent / "runs", [0], Location.write

    def write(self: Location, name: str, data: Any) -> None:
        if name.startswith(("measurements", "trials", "studies", "sources")):
            count[0] += 1
            if count[0] == writes:
                raise _Killed
        plain(self, name, data)

    monkeypatch.setattr(Location, "write", write)
    with pytest.raises(_Killed):
        shallue.import_shallue(tree, root)
    monkeypatch.setattr(Location, "write", plain)
    half = results.open(root)
    points = half.measurements.groupby("trial").size()
    whole = results.open(root).trials
    assert len(whole) < 60
    for trial in whole.trial:
        assert points[trial] == len(_plain(tree, trial.removeprefix("shallue_2019/")))
    assert set(points.index) == set(whole.trial)
    done = shallue.import_shallue(tree, root)
    assert (done.recorded, done.added) == (len(whole), 60 - len(whole))
    run = results.open(root)
    assert len(run.committed) == len(run.trials) == 60
    assert len(run.measurements) == 756
    assert len(run.studies) == len(run.source.table("studies")) == 12
    assert len(run.sources) == 6
    again = shallue.import_shallue(tree, root)
    assert (again.recorded, again.added, again.measurements) == (60, 0, 0)
    assert (again.trials, again.fresh, done.fresh) == (60, False, True)


def test_progress_and_one_at_a_time(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.imports.shallue._BYTES", 2000)
    root = tree.parent / "runs"
    seen: list[int] = []
    shallue.import_shallue(tree, root, lambda done: seen.append(done.added))
    assert seen == sorted(set(seen))
    assert seen[-1] == 60
    assert len(seen) >= 12
    claim = claimed(root, "import-shallue_2019", [])
    with pytest.raises(ResultsError, match="another import of shallue_2019 into"):
        shallue.import_shallue(tree, root)
    claim.release()
    assert shallue.import_shallue(tree, root).recorded == 60


def test_the_folder_above_it_is_taken_too(tree: Path) -> None:
    assert shallue.import_shallue(tree.parent, tree.parent / "runs").added == 60


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "does not exist"), ("file", "is not a folder"), ("empty", "holds no study")],
)
def test_a_folder_that_is_not_the_release(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=message) as caught:
        shallue.import_shallue(tmp_path / name, tmp_path / "runs")
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()


def test_the_full_tree_has_the_releases_size() -> None:
    every = release.plan()
    assert len(release.workloads()) == 35
    assert len(every) == 454
    assert sum(len(study.rows) for study in every) == 194_399
    assert sum(sum(study.rows) for study in every) == 71_638_836
