"""What a column of a log is taken for, and what is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import batchscale as bs
import results
from results.errors import ResultsError
from results.extensions import IMPORTS
from results.imports import Imported
from results.user_tables.log import read_log
from tests.results.test_shapes_of_tables import TRUE, curves, reached, written


def file(tmp_path: Path, text: str, name: str = "mine.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def column(path: Path, name: str, **given: str) -> list[Any]:
    return read_log(path, given).table.columns[name]


def imported(path: Path, **columns: str) -> Imported:
    done = IMPORTS.get("log")(path, path.parent / "runs", columns=columns)
    assert isinstance(done, Imported)
    return done


# Numbers.


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("batch_size,steps\n512,9\n1k,8\n2k,7\n", ["512", 1024, 2048]),
        ("batch_size,steps\n500,9\n1k,8\n2.5k,7\n", ["500", 1000, 2500]),
        ("batch_size,steps\n1Ki,9\n", [1024]),
        ('batch_size,steps\n512,9\n"1,024",8\n', ["512", "1024"]),
        ("batch_size;steps\n512;0,5\n1.024;0,25\n", ["512", "1024"]),
        ("batch_size\tsteps\n512\t9\n1,024\t8\n", ["512", "1024"]),
    ],
)
def test_numbers_as_people_write_them(tmp_path: Path, text: str, sizes: list[Any]) -> None:
    assert column(file(tmp_path, text), "batch_size") == sizes


def test_decimal_commas(tmp_path: Path) -> None:
    frame = curves().assign(run="a")
    path = tmp_path / "mine.csv"
    frame.to_csv(path, sep=";", decimal=",", index=False)
    assert reached(path) == TRUE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch_size;steps\n8;1,024\n", "1,024 may be 1024 or 1.024"),
        ("batch_size;steps\n8;1,5\n16;2.5\n", "1,5 has a decimal comma, but 2.5 none"),
        ('batch_size,steps\n8,"1,5"\n16,"1,024,000"\n', "1,5 has a decimal comma, but 1,024,000"),
    ],
)
def test_a_comma_that_may_be_either_is_asked_about(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ResultsError, match=says):
        read_log(file(tmp_path, text))


def test_percent(tmp_path: Path) -> None:
    text = "batch_size;step;val_acc\n1.024;10;75,5%\n512;20;80%\n"
    assert column(file(tmp_path, text), "val_acc") == ["75.5", "80"]
    assert column(file(tmp_path, text), "batch_size") == ["1024", "512"]


def test_texts_keep_their_commas(tmp_path: Path) -> None:
    path = file(tmp_path, 'batch_size,steps,name\n8,"1,024","a,b"\n16,900,"c, d"\n')
    assert column(path, "name") == ["a,b", "c, d"]
    assert column(path, "steps") == ["1024", "900"]


# Points.


def test_a_point_that_was_not_reached_has_its_budget(tmp_path: Path) -> None:
    text = "batch_size,steps,max_steps\n8,100,500\n16,,500\n32,> 400,\n64,FAIL,\n"
    trials = results.open(file(tmp_path, text)).trials
    assert trials["steps_to_target"].fillna(0).tolist() == [100, 0, 0, 0]
    assert trials["stop_reason"].tolist() == ["target", "budget", "budget", "budget"]
    assert trials["budget_steps"].fillna(0).tolist() == [500, 500, 400, 0]
    assert trials["examples_run"].fillna(0).tolist() == [800, 8000, 12800, 0]


def test_steps_of_evaluations_are_not_taken_for_steps_to_a_target(tmp_path: Path) -> None:
    path = written(tmp_path, curves().rename(columns={"step": "steps"}))
    with pytest.raises(ResultsError, match="steps may be steps to a target, or those of the eval"):
        results.open(path)
    assert column(path, "step", step="steps")[:2] == ["170", "340"]
    assert column(path, "steps", steps="steps")[:2] == ["170", "340"]
    runs = written(tmp_path, curves(run="a").rename(columns={"step": "steps"}))
    assert reached(runs) == TRUE


def test_equal_steps_beside_a_metric_may_be_budgets(tmp_path: Path) -> None:
    text = "batch_size,lr,steps,best_loss\n8,1,90,2\n8,2,90,3\n16,1,50,3\n16,2,50,4\n"
    with pytest.raises(ResultsError, match="a target, or budgets that end with best_loss"):
        results.open(path := file(tmp_path, text))
    assert column(path, "examples", examples="steps*batch_size") == [720, 720, 800, 800]
    trials = results.open(file(tmp_path, text.replace("8,1,90", "8,1,80"))).trials
    assert set(trials["metaparameters"]) == {'{"learning_rate":1.0}', '{"learning_rate":2.0}'}


def test_a_table_of_runs_of_mlflow(tmp_path: Path) -> None:
    text = "run_id,status,params.batch_size,params.lr,metrics.steps_to_target\na,FINISHED,"
    trials = results.open(file(tmp_path, text + "8,0.1,90\nb,FAILED,8,0.2,\n")).trials
    assert trials["steps_to_target"].fillna(0).tolist() == [90, 0]
    assert trials["learning_rate"].tolist() == [0.1, 0.2]


def test_tokens_of_a_batch_size_that_changes_are_no_steps(tmp_path: Path) -> None:
    text = "run,batch_size,tokens,loss\na,8,80,3\na,8,160,2\na,16,320,1\n"
    with pytest.raises(ResultsError, match="the batch size of run a changes, so that its steps"):
        results.open(file(tmp_path, text))
    assert len(results.open(file(tmp_path, text.replace("a,16", "b,16"))).trials) == 2


def test_steps_to_target_among_evaluations_are_no_point(tmp_path: Path) -> None:
    """Each evaluation of our own export was a run that had missed the target."""
    text = "run,batch_size,step,val_loss,steps_to_target\na,8,1,3,\na,8,2,1,2\nb,16,1,1,1\n"
    run = results.open(file(tmp_path, text)).with_target("val_loss < 2")
    assert run.trials["steps_to_target"].tolist() == [2, 1]


def test_state_of_a_run_makes_no_curve(tmp_path: Path) -> None:
    text = (
        "batch_size,steps,Status\n8,100,finished\n16,60,crashed\n16,55,finished\n32,40,finished\n"
        "32,20,running\n"
    )
    trials = results.open(file(tmp_path, text)).trials
    assert trials["fields"].isna().all()
    assert trials["steps_to_target"].fillna(0).tolist() == [100, 0, 55, 40, 0]


def test_pruned_final_losses_do_not_count(tmp_path: Path) -> None:
    """A run that still runs neither: its loss is not the one at the end of its budget."""
    text = "batch_size,tokens,loss,state\n8,800,2.0,COMPLETE\n16,800,1.0,PRUNED\n32,800,1,FAIL\n"
    text += "64,800,1,RUNNING\n"
    trials = results.open(file(tmp_path, text)).trials
    assert trials["status"].tolist() == ["COMPLETE", *["INCOMPLETE"] * 3]
    assert trials["stop_reason"].tolist() == ["budget", "dominated", "error", "interrupted"]


# Batch sizes.


@pytest.mark.parametrize("name", ["bs", "Batch Size", "config.batch_size", "config.train.bs"])
def test_names_of_batch_sizes(tmp_path: Path, name: str) -> None:
    assert reached(written(tmp_path, curves().rename(columns={"batch_size": name}))) == TRUE


def test_a_global_batch_size_stands_above_that_of_a_device(tmp_path: Path) -> None:
    frame = curves(per_device_batch_size=2, gradient_accumulation_steps=4)
    path = written(tmp_path, frame.rename(columns={"batch_size": "global_batch_size"}))
    assert reached(path) == TRUE


@pytest.mark.parametrize("multiple", ["gradient_accumulation_steps", "num_gpus"])
def test_a_batch_size_beside_multiples_is_asked_about(tmp_path: Path, multiple: str) -> None:
    frame = curves().assign(**{multiple: 4})
    frame["batch_size"] //= 4
    path = written(tmp_path, frame)
    with pytest.raises(ResultsError, match=f"for {multiple} \\(4\\) is there too") as caught:
        results.open(path)
    assert f"--map batch_size=batch_size*{multiple}" in str(caught.value.hint)
    imported(path, batch_size=f"batch_size*{multiple}")
    trials = results.open(tmp_path / "runs").with_target("val_loss < 1.00001").trials
    assert dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True)) == TRUE
    assert column(path, "batch_size", batch_size="batch_size*1")[0] == 4
    assert reached(written(tmp_path, curves().assign(**{multiple: 1}))) == TRUE


def test_the_hint_names_the_nearest_column(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="has no column 'batch_size'") as caught:
        read_log(file(tmp_path, "Batch sise,steps\n8,100\n"))
    assert str(caught.value.hint).endswith("--map 'batch_size=Batch sise'")


def test_two_batch_sizes_that_differ_are_asked_about(tmp_path: Path) -> None:
    path = file(tmp_path, "batch_size,bs,steps\n8,4,100\n")
    with pytest.raises(ResultsError, match="batch_size and bs differ, and either may be"):
        results.open(path)


def test_two_steps_that_differ_are_asked_about(tmp_path: Path) -> None:
    path = file(tmp_path, "batch_size,step,global_step,loss\n8,1,10,2\n8,2,20,1\n")
    with pytest.raises(ResultsError, match="step and global_step differ, and either may be step"):
        results.open(path)
    assert column(path, "step", step="global_step", call="step") == ["10", "20"]
    assert column(path, "step", step="step") == ["1", "2"]


def test_what_map_computes(tmp_path: Path) -> None:
    path = file(tmp_path, "a,b,s,loss\n2,8,9,1\n4,8,19,1\n")
    given = {"batch_size": "a*b*4", "step": "s+1"}
    assert column(path, "batch_size", **given) == [64, 128]
    assert column(path, "step", **given) == [10, 20]
    with pytest.raises(ResultsError, match="has no column 'c' to read as 'batch_size'"):
        read_log(path, {"batch_size": "a*c"})
    imported(path, **given)
    notes = results.open(tmp_path / "runs").studies["notes"]
    assert {*json.loads(notes[0])} == {"batch_size is a*b*4", "step is s+1"}


def test_tokens_over_a_batch_size_of_sequences(tmp_path: Path) -> None:
    frame = curves(run="a", seq_len=512)
    frame["tokens"] = frame["step"] * frame["batch_size"] * 512
    path = written(tmp_path, frame.drop(columns="step"))
    assert reached(path) == TRUE
    assert set(results.open(path).trials["tokens_per_example"]) == {512}


def test_a_batch_size_of_tokens_or_of_sequences_is_asked_about(tmp_path: Path) -> None:
    text = "run,batch_size,block_size,tokens,loss\na,1024,512,2048,3\na,1024,512,4096,2\n"
    path = file(tmp_path, text)
    with pytest.raises(ResultsError, match="may count tokens, or sequences of block_size tokens"):
        read_log(path)
    assert column(path, "step", tokens_per_example="1") == [2, 4]
    assert column(path, "batch_size", batch_size="batch_size*block_size")[0] == 1024 * 512


def test_an_objective_of_optuna_is_asked_about(tmp_path: Path) -> None:
    path = file(tmp_path, "number,value,params_batch_size,state\n0,2.5,8,COMPLETE\n")
    with pytest.raises(ResultsError, match="value, the objective, may be anything") as caught:
        read_log(path)
    assert "--map steps=value" in str(caught.value.hint)
    assert column(path, "loss", loss="value", examples="50000") == ["2.5"]


# Runs.


def test_what_says_where_a_run_was_makes_no_curves(tmp_path: Path) -> None:
    frame = curves()
    frame["hostname"] = [f"node{size % 3}" for size in frame["batch_size"]]
    frame["_timestamp"] = 1.7e9 + frame["batch_size"]
    path = written(tmp_path, frame)
    assert len(bs.regimes(path, target="val_loss < 1.00001")) == 1
    assert "not used: hostname, _timestamp" in imported(path).said


def test_times_that_runs_share_make_no_curves(tmp_path: Path) -> None:
    frame = curves()
    frame["when"] = [
        f"2026-11-01 10:00:{step % 7:02}" for step in frame.groupby("batch_size").cumcount()
    ]
    frame["elapsed"] = [f"0:{size % 7:02}:09" for size in frame["batch_size"] + frame["step"]]
    assert reached(written(tmp_path, frame)) == TRUE


@pytest.mark.parametrize("name", ["split", "mode", "event"])
def test_a_column_of_parts_of_the_data(tmp_path: Path, name: str) -> None:
    frame = curves(run="a").rename(columns={"val_loss": "loss"})
    train = frame.assign(loss=0.5 * frame["loss"])
    rows = pd.concat([frame.assign(**{name: "val"}), train.assign(**{name: "train"})])
    path = written(tmp_path, rows)
    assert reached(path) == TRUE
    assert reached(path, "train_loss < 0.50001") == TRUE


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    text = "batch_size,steps,steps\n8,100,{}\n16,60,60\n"
    assert column(file(tmp_path, text.format(100)), "steps") == ["100", "60"]
    with pytest.raises(ResultsError, match="has two columns 'steps'"):
        read_log(file(tmp_path, text.format(90)))


def test_a_setting_that_only_some_rows_have(tmp_path: Path) -> None:
    frame = curves()
    frame["run"] = "r" + frame["batch_size"].astype(str)
    frame["config.optimizer"] = None
    first = frame.groupby("run").head(1).index
    frame.loc[first, "config.optimizer"] = "adamw"
    frame.loc[frame.index.difference(first), "batch_size"] = np.nan
    path = written(tmp_path, frame)
    assert reached(path) == TRUE
    assert set(results.open(path).trials["optimizer"]) == {"adamw"}


def test_rows_without_a_step(tmp_path: Path) -> None:
    """Those of a machine's state are left out; at which step a metric was measured is asked."""
    text = "_step,global_step,batch_size,val/loss,system/gpu\n0,5,8,2,\n1,,8,,60\n2,9,8,1,\n"
    trials = results.open(file(tmp_path, text)).with_target("val_loss < 1.5").trials
    assert trials["steps_to_target"].tolist() == [9]
    with pytest.raises(ResultsError, match="line 5: step is missing"):
        results.open(file(tmp_path, text + "3,,8,0.5,\n"))


def test_a_learning_rate_in_rows_of_training_alone(tmp_path: Path) -> None:
    """Rows of evaluations are of the same runs."""
    frame = curves()
    train = frame.rename(columns={"val_loss": "train_loss"}).assign(lr=0.1)
    path = written(tmp_path, pd.concat([frame, train]).sort_values(["batch_size", "step"]))
    assert reached(path) == TRUE
    assert len(results.open(path).measurements) == len(frame)
    assert set(results.open(path).trials["learning_rate"]) == {0.1}
    two = pd.concat([frame, train, train.assign(lr=0.2, train_loss=9.0)])
    with pytest.raises(ResultsError, match="9 of 27 trials have no measurement of train_loss"):
        results.open(written(tmp_path, two)).with_target("train_loss < 1.00001")


@pytest.mark.parametrize("plateau", [0, 600])
def test_a_schedule_in_rows_of_training_alone_distinguishes_no_runs(
    tmp_path: Path, plateau: int
) -> None:
    """Beside several rows of evaluations at each step."""
    frame = curves(run="a")
    train = frame.rename(columns={"val_loss": "train_loss"})
    train["lr"] = 1 / train["step"].clip(lower=plateau)
    rows = pd.concat([frame, frame.rename(columns={"val_loss": "test_loss"}), train])
    path = written(tmp_path, rows.sort_values(["batch_size", "step"], kind="stable"))
    assert reached(path) == TRUE
    assert len(results.open(path).trials) == len(TRUE)


def test_a_logged_learning_rate_does_not_hide_the_configured_one(tmp_path: Path) -> None:
    frame = curves().assign(**{"config.lr": 0.1})
    frame["lr"] = 0.1 / frame["step"]
    trials = results.open(written(tmp_path, frame)).trials
    assert set(trials["learning_rate"]) == {0.1}


def test_metrics_at_steps_of_their_own_do_not_go_back(tmp_path: Path) -> None:
    """A tool that writes a metric after the other: the run was not started again."""
    frame = curves(run="a")
    later = frame.rename(columns={"val_loss": "train_loss"}).assign(step=frame["step"] + 1)
    parts = [
        part
        for size in frame["batch_size"].unique()
        for part in (frame[frame["batch_size"] == size], later[later["batch_size"] == size])
    ]
    path = written(tmp_path, pd.concat([*parts, frame.tail(1)]))
    assert reached(path) == TRUE
    assert len(results.open(path).measurements) == 2 * len(frame)


def test_a_metric_that_seems_to_be_logged_over_epochs(tmp_path: Path) -> None:
    frame = curves(run="a")
    epochs = frame.assign(step=frame.index % 25 + 1).rename(columns={"val_loss": "eval_loss"})
    path = written(tmp_path, pd.concat([frame[frame["step"] > 600], epochs[frame["step"] > 600]]))
    notes = results.open(path).studies["notes"]
    assert {*json.loads(notes[0])} == {
        f"eval_loss ends at step 25 of {frame['step'].max():,}: if it was logged over epochs, its "
        "steps are no updates"
    }
    assert results.open(written(tmp_path, frame)).studies["notes"].isna().all()


def test_steps_that_may_be_epochs(tmp_path: Path) -> None:
    table = pd.DataFrame({"batch_size": [8] * 4 + [16] * 4, "step": [*range(4)] * 2})
    path = written(tmp_path, table.assign(run=table["batch_size"], val_loss=1 / (1 + table.step)))
    notes = json.loads(results.open(path).studies["notes"][0])
    assert notes[0].startswith("runs have values at each step: if steps count epochs")
    assert column(path, "step", examples="step*160+160") == [20, 40, 60, 80, 10, 20, 30, 40]


def test_a_metric_that_was_measured_once(tmp_path: Path) -> None:
    frame = curves()
    frame["final_accuracy"] = np.where(frame.index % 25 == 24, 0.9, np.nan)
    trials = results.open(written(tmp_path, frame)).trials
    assert trials["metaparameters"].isna().all()


@pytest.mark.parametrize("rows", [500, 1000])
def test_a_sample_is_said_to_be_one(tmp_path: Path, rows: int) -> None:
    steps = np.sort(np.random.default_rng(0).choice(np.arange(9000), rows, replace=False))
    frame = pd.DataFrame({"batch_size": 8, "step": steps, "loss": 1 / (1.0 + steps)})
    path = written(tmp_path, frame)
    with pytest.raises(ResultsError, match=f"mine is sampled: {rows:,} rows up to step"):
        results.open(path)
    assert len(read_log(path, complete=True).table.places) == rows
    ends = np.append(10 * np.arange(rows - 1), 10 * rows + 3)  # at the end of training
    even = frame.assign(step=ends)
    assert len(results.open(written(tmp_path, even)).trials) == 1


def test_what_was_taken_for_what_is_said(tmp_path: Path) -> None:
    frame = curves().rename(columns={"val_loss": "val/loss", "batch_size": "bs"})
    frame = pd.concat([frame.assign(lr=0.1), frame.assign(lr=0.2)])
    assert imported(written(tmp_path, frame)).said == [
        "read 1 file as a table: 18 runs",
        "batch size: bs, 16, 32, 64, 128, …, 4,096",
        "evaluations at: step",
        "metrics: val_loss (val/loss)",
        "settings, over which the best counts: learning_rate (2 values)",
    ]
