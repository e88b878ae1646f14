"""A CSV or Parquet file of one's own: points, whole curves, and each thing that may be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import results
from results.errors import ResultsError


def _file(tmp_path: Path, text: str, name: str = "curves.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_points(tmp_path: Path) -> None:
    path = _file(tmp_path, "batch_size,steps\n8,100.5\n8,90\n16,50\n")
    run = results.open(path)
    assert run.trials.steps_to_target.tolist() == [100.5, 90.0, 50.0]
    assert run.trials.batch_size.tolist() == [8, 8, 16]
    assert set(run.trials.role) == {"repeat"}
    assert set(run.trials.status) == {"COMPLETE"}
    assert set(run.trials.stop_reason) == {"target"}
    assert run.trials.last_miss.isna().all()
    assert run.trials.study.nunique() == len(run.studies) == 2
    assert run.trials.trial.is_unique
    assert len(run.measurements) == 0
    assert run.query("SELECT min(steps_to_target) AS best FROM trials").best[0] == 50.0


def test_columns_with_a_home_go_there_and_the_rest_to_fields(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "batch_size; steps; optimizer; width; learning_rate; target; note\n"
        "# a comment\n"
        "8; 100; sgd; 64; 0.1; validation_error < 0.04; first\n\n"
        "8; 80; sgd; 64; 0.2; validation_error < 0.04; first\n",
    )
    trials = results.open(path).trials
    assert trials.optimizer.tolist() == ["sgd", "sgd"]
    assert trials.learning_rate.tolist() == [0.1, 0.2]
    assert trials.width.tolist() == [64, 64]
    assert json.loads(trials.fields[0]) == {"note": "first", "width": 64}
    assert trials.target_metric.tolist() == ["validation_error"] * 2
    assert trials.target_value.tolist() == [0.04] * 2
    assert len(results.open(path).where("width = 64").trials) == 2
    assert json.loads(trials.metaparameters[1]) == {"learning_rate": 0.2}


def test_a_column_target_counts_the_steps_of_whole_curves(tmp_path: Path) -> None:
    rows: dict[int, list[tuple[int, float]]] = {
        8: [(0, 3.0), (100, 1.9)],
        16: [(0, 3.0), (50, 2.0), (70, 1.8)],
        32: [(0, 3.0), (9, 2.0)],
    }
    lines = [f"{b},{s},{v},a_loss < 2" for b, each in rows.items() for s, v in each]
    path = _file(tmp_path, "\n".join(["batch_size,step,a_loss,target", *lines]))
    run = results.open(path)
    assert run.trials.steps_to_target.fillna(-1).tolist() == [100, 70, -1]
    assert run.trials.last_miss.fillna(-1).tolist() == [0, 50, -1]
    assert run.trials.stop_reason.tolist() == ["target", "target", "budget"]
    for target in ("a_loss < 2", "a_loss < 1.9"):  # the same, and a harder one
        again = run.with_target(target).trials.steps_to_target.fillna(-1).tolist()
        assert again == ([100, 70, -1] if target == "a_loss < 2" else [-1, 70, -1])


def test_numbers_that_describe_points_do_not_tell_curves_apart(tmp_path: Path) -> None:
    text = "batch_size,steps,relative_error,seed\n8,100,0.03,1\n16,50,0.1,2\n32,40,0.03,3\n"
    trials = results.open(_file(tmp_path, text)).trials
    assert trials.fields.isna().all()
    assert trials.seed.tolist() == [1, 2, 3]


def test_parquet_points(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"batch_size": [8, 16], "steps": [10, 7.5], "optimizer": ["a", None]}).to_parquet(
        path
    )
    trials = results.open(path).trials
    assert trials.steps_to_target.tolist() == [10.0, 7.5]
    assert trials.optimizer[0] == "a"


_WHOLE = """batch_size,step,run,validation_error,top5,optimizer
8,0,a,0.9,0.1,sgd
8,20,a,0.1,0.8,sgd
8,10,a,0.5,0.5,sgd
8,0,b,0.9,0.1,sgd
8,10,b,0.05,0.9,sgd
8,20,b,nan,0.9,sgd
16,10,a,0.04,0.9,sgd
"""


def test_whole_curves(tmp_path: Path) -> None:
    run = results.open(_file(tmp_path, _WHOLE))
    assert len(run.trials) == 3
    assert run.trials.steps_to_target.isna().all()
    assert run.trials.steps_run.tolist() == [20, 20, 10]
    assert len(run.measurements) == 7
    found = run.with_target("validation_error < 0.2").trials
    assert found.steps_to_target.tolist() == [20.0, 10.0, 10.0]
    assert found.last_miss.tolist() == [10.0, 0.0, 0.0]
    top = run.with_target("top5 > 0.7").trials
    assert top.steps_to_target.tolist() == [20.0, 10.0, 10.0]
    assert set(top.optimizer) == {"sgd"}


def test_whole_curves_without_runs(tmp_path: Path) -> None:
    text = "batch_size,step,train_loss\n8,1,2.5\n8,2,1.5\n16,1,1.0\n"
    run = results.open(_file(tmp_path, text)).with_target("train_loss < 2")
    assert run.trials.steps_to_target.tolist() == [2.0, 1.0]
    assert run.trials.examples_run.tolist() == [16, 16]


def test_whole_curves_of_two_widths_are_two(tmp_path: Path) -> None:
    rows = [f"{size},1,{width}-{size},{width},2.5" for size in (8, 16) for width in (64, 256)]
    text = "\n".join(["batch_size,step,run,width,train_loss", *rows])
    texts = results.open(_file(tmp_path, text)).trials.metaparameters
    assert [json.loads(text)["width"] for text in texts] == [64, 256, 64, 256]


def test_steps_of_points_cannot_be_found_again(tmp_path: Path) -> None:
    run = results.open(_file(tmp_path, "batch_size,steps\n8,100\n"))
    with pytest.raises(ResultsError, match="1 of 1 trial has no measurement of train_loss"):
        run.with_target("train_loss < 2")


def test_steps_read_off_a_figure_have_their_error(tmp_path: Path) -> None:
    text = "batch_size,steps,relative_error\n8,100,0.03\n16,60,0.1\n32,40,\n"
    run = results.open(_file(tmp_path, text))
    assert run.trials.relative_error.fillna(-1).tolist() == [0.03, 0.1, -1]
    assert run.trials.fields.isna().all()


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        (
            "batch_size,steps,relative_error\n8,10,0.1\n16,9,3\n",
            "line 3: relative_error is 3, but it must be below 1",
            "a share of the steps: 3 % is 0.03",
        ),
        (
            "batch_size,steps,relative_error\n8,10,-0.1\n",
            "line 2: relative_error is -0.1, but it must be at least 0",
            None,
        ),
        ("batch_size,steps,relative_error\n8,10,3%\n", "line 2: relative_error is '3%'", None),
        ("batch_size,steps,relative_error\n8,10,inf\n", "relative_error is inf", None),
        ("batch sise,steps\n8,1\n", "has no column 'batch_size'", "rename 'batch sise'"),
        ("batch_size,stesp\n8,1\n", "has no column 'steps'", "rename 'stesp'"),
        ("a,b\n8,1\n", "has no column 'batch_size'", "needed: batch_size and steps"),
        ("batch_size,steps\n8,10\n16,many\n", "line 3: steps is 'many', not a number", None),
        ("batch_size,steps\n8,0\n", "line 2: steps is 0, but it must be above 0", None),
        ("batch_size,steps\n8,10\n16,-5\n", "line 3: steps is -5, but it must be above", None),
        ("batch_size,steps\n0,5\n", "line 2: batch_size is 0, but it must be at least 1", None),
        ("batch_size,steps\n8.5,5\n", "line 2: batch_size is 8.5, but it must be whole", None),
        ("batch_size,steps\nbig,5\n", "line 2: batch_size is 'big', not a number", None),
        ("batch_size,steps\n8,5,6\n", "line 2: 3 values under 2 columns", None),
        ("batch_size,steps,steps\n8,5,6\n", "has two columns 'steps'", None),
        ("batch_size,steps,seed\n8,5,x\n", "line 2: seed is 'x', not a number", None),
        ("batch_size,steps,target\n8,5,low\n", "line 2: target 'low' is not METRIC", "for example"),
        ("batch_size,steps\n", "has no rows", None),
        ("", "is empty", None),
        ("batch_size,step\n8,1\n", "has no metric besides step", "for example"),
        ("batch_size,step,train_loss\n8,-1,1\n", "line 2: step is -1", None),
        (
            "batch_size,step,train_loss\n8,1.5,1\n",
            "line 2: step is 1.5, but it must be whole",
            None,
        ),
        ("batch_size,step,train_loss\n8,1,low\n", "line 2: train_loss is 'low'", None),
        (
            "batch_size,step,train_loss\n8,1,2\n16,1,2\n8,1,3\n",
            "line 4: step 1 occurs twice in one run at batch size 8",
            "column `run`",
        ),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, text: str, says: str, hint: str | None) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ResultsError) as caught:
        results.open(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert hint is None or hint in str(caught.value.hint)
    assert path.read_text() == text


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no file"):
        results.open(tmp_path / "none.csv")
    (tmp_path / "half.parquet").write_bytes(b"PAR1half")
    with pytest.raises(ResultsError, match=r"half\.parquet is not a whole Parquet file"):
        results.open(tmp_path / "half.parquet")
    (tmp_path / "latin.csv").write_bytes(b"batch_size,steps\n8,\xe9\n")
    with pytest.raises(ResultsError, match="is not UTF-8 text"):
        results.open(tmp_path / "latin.csv")


def test_a_row_of_parquet_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"batch_size": [8, 16], "steps": [1.0, -1.0]}).to_parquet(tmp_path / "m.parquet")
    with pytest.raises(ResultsError, match=r"m\.parquet row 2: steps is"):
        results.open(tmp_path / "m.parquet")
