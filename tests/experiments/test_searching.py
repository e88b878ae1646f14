"""The keys that say how a study is searched: what they become, and what wrong ones get."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.compile import from_keywords, load, parse
from experiments.errors import ExperimentError
from tests.experiments.files import EXPERIMENT, folder, ids, own

DIGITS = """\
workload: digits-mlp
grid:
  batch_size: 8..16
  optimizer: [sgd, momentum]
"""
POINTS = """\
points:
  - {learning_rate: 0.1, momentum: 0.9}
  - {learning_rate: 0.2, momentum: 0.9}
  - {learning_rate: 0.2, momentum: 0.5}
"""


def experiment(more: str = "") -> Any:
    return parse(DIGITS + more, "my.yaml")


def test_defaults():
    study = experiment().plans()[0].study
    assert (study.search, study.extend, study.repeats) == ("sobol", 0, 0)
    assert study.estimator == "minimum"


def test_all_of_them_reach_the_study_and_come_back():
    of = experiment("method: random\nextend: 2\nrepeats: 5\nestimator: best_of_10\nkeep: 10\n")
    study = of.plans()[0].study
    assert (study.search, study.extend, study.repeats) == ("random", 2, 5)
    assert study.estimator == "best_of_10"
    again = parse(of.to_yaml())
    assert again.plans()[0].study == study
    assert again.to_yaml() == of.to_yaml()
    assert ids(again) == ids(of) != ids(experiment())


def test_what_draws_the_points_does_not_change_the_study():
    """Points and seeds are not part of a study's identity; the default table is what it was."""
    sobol, random = experiment().plans(), experiment("method: random\n").plans()
    assert [p.study.id for p in sobol] == [p.study.id for p in random]
    assert sobol[0].trial(0).metaparameters != random[0].trial(0).metaparameters
    assert sobol[0].trial(0).id == FIRST
    assert ids(experiment("method: sobol\n")) == ids(experiment())


FIRST = "caad663f25b8ee67071d"


def test_a_grid_is_trained_whole():
    sgd, _, momentum, _ = experiment("method: grid\ntrials: 10\n").plans()
    assert (sgd.study.trials, sgd.max_rows) == (10, 10)
    assert (momentum.study.trials, momentum.max_rows) == (12, 12)
    rows = momentum.trials(0, 50)
    assert len({trial.id for trial in rows}) == 12
    assert len({trial.metaparameters["learning_rate"] for trial in rows}) == 4
    again = parse(experiment("method: grid\ntrials: 10\n").to_yaml())
    assert [p.study.trials for p in again.plans()] == [10, 10, 12, 12]


def test_points_are_the_trials():
    of = experiment(POINTS)
    assert of.search_method == "points"
    sgd, _, momentum, _ = of.plans()
    assert [t.metaparameters for t in momentum.trials(0, 9)] == [
        {"learning_rate": 0.1, "momentum": 0.9},
        {"learning_rate": 0.2, "momentum": 0.9},
        {"learning_rate": 0.2, "momentum": 0.5},
    ]
    assert [t.metaparameters for t in sgd.trials(0, 9)] == [  # without momentum two are the same
        {"learning_rate": 0.1},
        {"learning_rate": 0.2},
    ]
    assert (sgd.study.trials, momentum.study.trials, momentum.max_rows) == (2, 3, 3)
    assert momentum.search_space["learning_rate"] == {"discrete": [0.1, 0.2]}
    again = parse(of.to_yaml())
    assert [p.study for p in again.plans()] == [p.study for p in of.plans()]
    assert ids(again) == ids(of)


def test_fewer_points_than_there_are():
    plans = experiment(POINTS + "trials: 2\n").plans()
    assert [p.study.trials for p in plans] == [2, 2, 2, 2]
    assert [len(p.trials(0, 9)) for p in plans] == [2, 2, 2, 2]
    assert parse(experiment(POINTS + "trials: 2\n").to_yaml()).trials == 2
    assert [p.study.trials for p in experiment(POINTS + "trials: 9\n").plans()] == [2, 2, 3, 3]


def test_points_of_each_optimizer_with_shares_and_fields(tmp_path):
    text = EXPERIMENT.replace("  width: [4, 8]\n", "  schedule: linear\n") + (
        "search: {weight_decay: 0.1}\n"
        "points:\n"
        "  sgd: [{learning_rate: 1, decay: 0.5, width: 8}]\n"
        "  momentum: [{learning_rate: 1, momentum: 0.5, decay_steps: 9}]\n"
        "  my_opt.py:Sign: [{learning_rate: 0.1, decay: 1, power: 2}]\n"
    )
    of = own(tmp_path, text)
    found = {p.study.optimizer: p for p in of.plans() if p.study.batch_size == 8}
    trials = {name: plan.trials(0, 9)[0].metaparameters for name, plan in found.items()}
    budget = found["sgd"].study.budget_steps
    assert trials["sgd"] == {
        "decay_steps": budget // 2, "end_factor": 0.01, "learning_rate": 1, "weight_decay": 0.1,
        "width": 8,
    }  # fmt: skip
    assert trials["momentum"]["decay_steps"] == 9
    assert trials["my_opt.py:Sign"]["power"] == 2
    assert "width" not in found["sgd"].identity["workload"]["fields"]
    assert "width" in found["momentum"].identity["workload"]["fields"]
    again = parse(of.to_yaml(), base=tmp_path)
    assert ids(again) == ids(of)


def test_said_in_python():
    given = {"workload": "digits-mlp", "optimizer": "sgd", "batch_size": 8}
    picked = from_keywords(**given, points=[{"learning_rate": 0.1}, {"learning_rate": 0.2}])
    assert [t.metaparameters["learning_rate"] for t in picked.plans()[0].trials(0, 9)] == [0.1, 0.2]
    drawn = from_keywords(**given, method="random", extend=1, repeats=3)
    study = drawn.plans()[0].study
    assert (study.search, study.extend, study.repeats) == ("random", 1, 3)


def complaint(tmp_path, more: str) -> tuple[str, str]:
    with pytest.raises(ExperimentError) as raised:
        load(folder(tmp_path, DIGITS + more))
    message = str(raised.value)
    assert "\n" not in message + (raised.value.hint or "")
    return message.replace(f"{tmp_path}/", ""), raised.value.hint or ""


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ("method: sobl", "my.yaml:5: unknown method 'sobl'", "did you mean 'sobol'?"),
        ("method: 3", "my.yaml:5: method must be text, not 3", ""),
        ("method: points", "my.yaml:5: method points needs points", "points: [{learning_rate"),
        (
            "points: [{learning_rate: 1, momentum: 0.5}]\nmethod: grid",
            "my.yaml:5: points are given, and method is grid",
            "keep one",
        ),
        ("extend: -1", "my.yaml:5: extend must be at least 0, not -1", "0: never"),
        ("extend: 1.5", "my.yaml:5: extend must be a whole number, not 1.5", ""),
        ("extend: on", "my.yaml:5: extend must be a whole number, not 'on'", ""),
        ("extend: 1\nmethod: grid", "extend cannot be used with method grid", "sobol or"),
        (f"extend: 1\n{POINTS}", "extend cannot be used with method points", "widen"),
        ("repeats: -2", "my.yaml:5: repeats must be at least 0, not -2", "fresh seeds"),
        ("repeats: some", "my.yaml:5: repeats must be a whole number, not 'some'", ""),
        (
            "estimator: median",
            "my.yaml:5: estimator 'median' is not one of 'minimum', 'best_of_10' or 'median_of_",
            "",
        ),
        ("estimator: best_of_10", "my.yaml:5: estimator best_of_10 needs the 10 best", "or off"),
        ("estimator: best_of_10\nkeep: off\ntrials: 9", "my.yaml:5: estimator best_of_10 needs at "
         "least 10: trials is 9", "trials: 10"),
        (f"estimator: best_of_10\nkeep: off\n{POINTS}", "needs trials that are", "sobol"),
    ],
)  # fmt: skip
def test_keys_that_cannot_be(tmp_path, more, message, hint):
    said, hinted = complaint(tmp_path, more)
    assert message in said
    assert said.startswith("my.yaml:5: ")
    assert hint in hinted


@pytest.mark.parametrize(
    ("points", "line", "message", "hint"),
    [
        ("points: 3", 5, "points is not a list of points", "for example"),
        ("points: []", 5, "points is not a list of points", "for example"),
        ("points:\n  - 0.1", 6, "points[0]: 0.1 is not a point", "for example"),
        ("points:\n  - {}", 6, "points[0]: {} is not a point", "for example"),
        ("points:\n  - {learning_rate: 0.1}\n", 6,
         "points[0] gives no momentum, which momentum tunes", "search: {momentum: …}"),
        ("points:\n  - {learning_rate: 1, momentum: 0.5}\n  - {learning_rate: 1}\n", 7,
         "points[1] gives no momentum, which momentum tunes", "give it in each"),
        ("search: {momentum: 0.9}\npoints:\n  - {learning_rate: 1}\n"
         "  - {learning_rate: 1, weight_decay: 0.1}", 7,
         "points[0] gives no weight_decay, as others do", "give it in each"),
        ("points:\n  - {momentum: 0.5}", 6, "points[0] gives no learning_rate", ""),
        ("points:\n  - {learning_rat: 1}", 6,
         "points[0].learning_rat: nothing in the grid has it", "'learning_rate'"),
        ("points:\n  - {learning_rate: 1,\n     momentum: 1}", 7,
         "points[0].momentum: 1 is outside [0, 1)", ""),
        ("points:\n  - {learning_rate: fast, momentum: 0}", 6,
         "points[0].learning_rate: 'fast' is not a number", ""),
        ("points:\n  - {learning_rate: .inf, momentum: 0}", 6,
         "points[0].learning_rate: inf is not a finite number", ""),
        ("points:\n  - {learning_rate: {log: [1, 2]}, momentum: 0}", 6,
         "points[0].learning_rate: {'log': [1, 2]} is not a value", "one value of each"),
        ("points:\n  - {learning_rate: 1, momentum: 0}\n  - {learning_rate: 1.0, momentum: 0}", 7,
         "points[1] is the same as points[0]", "keep one"),
        ("points:\n  sgd: [{learning_rate: 1}]", 5, "points has no entry for momentum", ""),
        ("points:\n  sgd: [{learning_rate: 1}]\n  adm: []", 7,
         "points.adm: no such optimizer in the grid", "known: sgd, momentum"),
        ("points:\n  sgd: [{learning_rate: 1, momentum: 0.5}]\n  momentum: []", 6,
         "points.sgd[0].momentum: nothing in the grid has it", ""),
        ("points:\n  - {learning_rate: 1, momentum: 0, label_smoothing: 2}", 5,
         "field 'label_smoothing'", ""),
        ("  label_smoothing: [0, 0.1]\npoints:\n"
         "  - {learning_rate: 1, momentum: 0, label_smoothing: 0.5}", 5,
         "label_smoothing is in the grid and in points", "keep one"),
    ],
)  # fmt: skip
def test_points_that_cannot_be(tmp_path, points, line, message, hint):
    said, hinted = complaint(tmp_path, points)
    assert message in said
    assert said.startswith(f"my.yaml:{line}: "), said
    assert hint in hinted
