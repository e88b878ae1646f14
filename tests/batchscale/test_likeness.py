"""``plan --like``: another workload's curves, and that it says so."""

from __future__ import annotations

import json

import pytest

import batchscale as bs
from analysis.figure_data import FigureData, Query
from batchscale.output.errors import CommandError
from batchscale.planning.likeness import _CURVES, like
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear
from workloads.registry import names

MODEL = ["--seconds-per-example", "1e-3", "--gradient-bytes", "4e7", "--bandwidth", "1e10"]
FAMILY, DATA = "the same data set and family of model", "the same data set"
KIND = "the same kind of model and task"


@pytest.mark.parametrize(
    ("name", "workload", "why"),
    [
        ("cifar10-resnet18", "cifar10-resnet8", FAMILY),
        ("CIFAR10/VGG11", "cifar10-resnet8", DATA),
        ("cifar100-resnet18", "cifar10-resnet8", KIND),
        ("imagenet-resnet50", "resnet", FAMILY),
        ("fashion-mnist-simple-cnn", "fashion-mnist-simple-cnn", "the same workload"),
        ("digits-softmax", "digits-fc", DATA),
        ("c4/llama-7b", "c4-transformer-85m", DATA),
        ("lm-lstm", "lm-lstm", "the same workload"),
        ("digits-mlp", "digits-mlp", "the same workload"),
    ],
)
def test_the_nearest_workload(name: str, workload: str, why: str) -> None:
    found = like(name)
    assert (found.workload, found.why) == (workload, why)


def test_names_that_say_neither_data_set_nor_model() -> None:
    for name in {"teacher", "markov", "quadratic", "multilabel-mlp", "mine"}:
        with pytest.raises(CommandError, match="names no data set and no model that is known"):
            like(name)
    with pytest.raises(CommandError) as error:
        like("teacher")
    assert str(error.value.hint).startswith("a workload's name; or DATASET/MODEL")
    with pytest.raises(CommandError, match="no packaged curve is near to shakespeare"):
        like("shakespeare")
    with pytest.raises(CommandError) as error:
        like("resne")
    assert str(error.value.hint).startswith("did you mean resnet?")
    assert all(like(name) for name in names() if name.startswith(("cifar", "imagenet", "lm", "mn")))


@pytest.mark.parametrize("workload", _CURVES)
def test_each_workload_of_the_table_has_packaged_curves(workload: str) -> None:
    data = FigureData(like(workload).query(Query(sources=["own"])))
    assert {*data.recorded["workload"]} == {workload}


def test_that_they_are_of_another_workload_is_the_first_line(command: Command) -> None:
    given = ["--like", "wikitext2/lstm", "--devices", "1,4,16", *MODEL]
    lines = command("plan", *given).out.splitlines()
    assert lines[0] == (
        "These are curves of lm-lstm, not of wikitext2/lstm: the same kind of model and task; a "
        "curve of its own may differ by orders of magnitude"
    )
    answer = json.loads(command("plan", *given, "--json").out)
    assert {plan["workload"] for plan in answer["plans"]} == {"lm-lstm"}
    assert all(plan["note_codes"][0] == "other_workload" for plan in answer["plans"])
    of_task = answer["like"]
    assert (of_task["workload"], of_task["why"]) == ("lm-lstm", KIND)
    assert of_task["task"] == "language modelling"
    assert of_task["curves"] >= 6
    assert 0 <= of_task["open"] <= of_task["curves"]
    (line,) = [line for line in lines if line.startswith("Enough over")]
    assert f"{of_task['curves']} packaged curves of language modelling" in line
    assert f"(open for {of_task['open']})" in line


def test_what_it_excludes(command: Command) -> None:
    clear(command("plan", *MODEL), "a plan is of a SOURCE, or --like a workload that has none")
    clear(command("plan", "own", "--like", "digits-fc", *MODEL), "a plan is of a SOURCE, or --like")
    clear(command("plan", "--like", "digits-fc", "--measure"), "--like excludes --measure")
    with pytest.raises(CommandError, match="a plan is of a SOURCE"):
        bs.plan(seconds_per_example=1.0)
