"""What of a release's tree is odd: read as it is meant, passed over, or refused by its name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.results.release import CNN, FC, IMAGES, WORDS
from tests.results.test_shallue import _import


def _metadata(trial: Path, **changed: Any) -> None:
    content = json.loads(trial.joinpath("metadata.json").read_text())
    trial.joinpath("metadata.json").write_text(json.dumps({**content, **changed}))


HEAD = "step,val/classification_error\n"


@pytest.mark.parametrize(
    ("text", "rows", "reason"),
    [
        ("", None, "measurements.csv holds no measurement, but the trial is COMPLETE"),
        (HEAD, None, "measurements.csv holds no measurement, but the trial is COMPLETE"),
        ("val/classification_error\n0.5\n", None, "has no column step"),
        ("step,val/x,val/x\n1,2,3\n", None, "has a column twice"),
        ("step,epoch\n1,2\n", None, "column 'epoch': no metric of train, val or test"),
        (HEAD + "1,0.5\n2,half\n", None, "does not parse"),
        (HEAD + "1,0.5\n2,0.4,0.3\n", None, "does not parse"),
        (HEAD + "1.5,0.5\n", None, "does not parse"),
        (HEAD + "-1,0.5\n", None, "a step is missing or negative"),
        (HEAD + ",0.5\n", None, "a step is missing or negative"),
        (HEAD + "1,0.5\n\n2,0.4\n\n", [(1, 0.5), (2, 0.4)], ""),
        (HEAD + "0,0.5\n7,0.4", [(0, 0.5), (7, 0.4)], ""),
        (HEAD + "10.0,0.5\n1e2,\n", [(10, 0.5), (100, math.nan)], ""),
        (HEAD + "9,nan\n3,inf\n5,0.5\n", [(3, math.inf), (5, 0.5), (9, math.nan)], ""),
        (HEAD.replace("\n", "\r\n") + "1,0.5\r\n", [(1, 0.5)], ""),
        ("step\n1\n2\n", [(1, math.nan), (2, math.nan)], ""),
    ],
)
def test_odd_measurements(
    tree: Path, text: str, rows: list[tuple[int, float]] | None, reason: str
) -> None:
    trial = tree / CNN / "64" / "2"
    trial.joinpath("measurements.csv").write_bytes(text.encode())
    run, done = _import(tree)
    name = f"shallue_2019/{CNN}/64/2"
    if rows is None:
        ((refused, why),) = done.refused
        assert refused == f"{CNN}/64/2"
        assert reason in why
        assert "\n" not in why
        assert name not in set(run.trials.trial)
        assert len(run.measurements) == done.measurements == 756 - 20
        return
    assert done.refused == []
    own = run.measurements[run.measurements.trial == name]
    expected = pd.DataFrame(rows, columns=["step", "validation_error"])
    pd.testing.assert_frame_equal(
        own[["step", "validation_error"]].reset_index(drop=True), expected
    )


@pytest.mark.parametrize("text", ["", HEAD])
def test_a_trial_that_diverged_at_once_has_no_measurements(tree: Path, text: str) -> None:
    trial = tree / CNN / "64" / "3"
    trial.joinpath("measurements.csv").write_text(text)
    run, done = _import(tree)
    assert done.refused == []
    row = run.trials.set_index("trial").loc[f"shallue_2019/{CNN}/64/3"]
    assert row["status"] == "INFEASIBLE"
    own = run.where("workload = 'mnist-simple-cnn'")
    assert own.with_target("validation_error < 0.05").trials.steps_to_target.notna().any()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": "DONE"}, "status: Input should be 'COMPLETE', 'INFEASIBLE' or 'INCOMPLETE'"),
        ({"trial_id": 7}, "trial_id is 7"),
        ({"steps": -1}, "steps: Input should be greater than or equal to 0"),
        ({"steps": 1.5}, "steps: Input should be a valid integer"),
        ({"parameters": [1]}, "parameters: Input should be an object"),
        ({"parameters": {"momentum": None}}, "parameters.momentum: Input should be a valid"),
        ({"parameters": {"momentum": "high"}}, "momentum is 'high', not a number"),
        (
            {"parameters": {"learning_rate_decay_steps": 1.5}},
            "decay_steps is 1.5, not a whole number",
        ),
    ],
)
def test_odd_metadata(tree: Path, changed: dict[str, Any], reason: str) -> None:
    _metadata(tree / WORDS / "64" / "2", **changed)
    run, done = _import(tree)
    ((name, why),) = done.refused
    assert name == f"{WORDS}/64/2"
    assert why.startswith(f"metadata.json: {reason}")
    assert len(run.trials) == 59
    assert len(run.measurements) == 756 - 20


@pytest.mark.parametrize("file", ["metadata.json", "measurements.csv"])
def test_a_missing_file_of_a_trial(tree: Path, file: str) -> None:
    (tree / IMAGES / "64" / "1" / file).unlink()
    run, done = _import(tree)
    assert done.refused == [(f"{IMAGES}/64/1", f"it has no {file}")]
    assert len(run.trials) == 59


@pytest.mark.parametrize("text", ["{", "[]"])
def test_metadata_that_is_no_mapping(tree: Path, text: str) -> None:
    (tree / IMAGES / "64" / "1" / "metadata.json").write_text(text)
    _, done = _import(tree)
    ((_, why),) = done.refused
    assert why.startswith(f"metadata.json: {'Invalid JSON' if text == '{' else 'Input should be'}")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"batch_size": 32}, "batch_size is 32, its folder says '64'"),
        ({"model": "vgg_11"}, "model is 'vgg_11', its folder says 'simple_cnn_base'"),
        ({"dataset": "emnist"}, "dataset is 'emnist', its folder says 'mnist'"),
        ({"train_steps": None}, "train_steps: Input should be a valid integer"),
        ({"parameter_configs": [1]}, "parameter_configs: Input should be an object"),
        (None, "it has no study.json"),
    ],
)
def test_odd_studies(tree: Path, changed: dict[str, Any] | None, reason: str) -> None:
    file = tree / CNN / "64" / "study.json"
    if changed is None:
        file.unlink()
    else:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    run, done = _import(tree)
    ((name, why),) = done.refused
    assert name == f"{CNN}/64"
    assert why.removeprefix("study.json: ") == reason
    assert len(run.studies) == 11
    assert len(run.trials) == 55
    assert len(run.measurements) == 756 - 63


def test_folders_of_other_names(tree: Path) -> None:
    (tree / CNN / "64").rename(tree / CNN / "sixty-four")
    (tree / FC).rename(tree / "mnist" / "fc_1024" / "adam")
    (tree / WORDS).parent.rename(tree / "lm1b" / "my lstm")
    (tree / IMAGES / "64" / "1").rename(tree / IMAGES / "64" / "first")
    run, done = _import(tree)
    whys = dict(done.refused)
    assert whys[f"{CNN}/sixty-four"].endswith("its folder says 'sixty-four'")
    assert "optimizer is 'sgd', its folder says 'adam'" in whys["mnist/fc_1024/adam/64"]
    assert "its folder says 'my lstm'" in whys["lm1b/my lstm/nesterov_momentum/64"]
    assert whys[f"{IMAGES}/64/first"] == "its folder's name is not a trial id"
    assert len(done.refused) == 6
    assert len(run.trials) == 60 - 5 - 10 - 10 - 1


def test_files_that_are_none_of_the_releases_are_passed_over(tree: Path) -> None:
    names = ["README.md", "mnist/.DS_Store", f"{CNN}/64/notes.txt", f"{CNN}/64/1/plot.png"]
    for name in names:
        (tree / name).write_text("")
    (tree / CNN / "64" / "figures").mkdir()
    _, done = _import(tree)
    assert sorted(done.ignored) == sorted([*names, f"{CNN}/64/figures"])
    assert done.added == 60


def test_a_space_of_odd_configurations(tree: Path) -> None:
    file = tree / CNN / "64" / "study.json"
    configs = {
        "learning_rate": {
            "type": "DOUBLE",
            "scale": "LINEAR_SCALE",
            "min_value": 1,
            "max_value": 2,
        },
        "momentum": {"type": "DOUBLE", "scale": "", "min_value": 0.9, "max_value": 0.9},
        "depth": {"type": "INTEGER", "scale": "", "min_value": 1, "max_value": 4},
        "label_smoothing": {"type": "DISCRETE", "feasible_points": [0.1]},
        "odd": {"type": "DOUBLE"},
    }
    content = {**json.loads(file.read_text()), "parameter_configs": configs}
    file.write_text(json.dumps(content))
    run, _ = _import(tree)
    row = run.studies.set_index("study").loc[f"shallue_2019/{CNN}/64"]
    assert json.loads(str(row["search_space"])) == {
        "learning_rate": {"linear": [1, 2]},
        "momentum": 0.9,
        "depth": {"integer": [1, 4]},
        "label_smoothing": 0.1,
    }
    assert row["dimensions"] == 2
