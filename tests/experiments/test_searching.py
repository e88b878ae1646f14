"""The keys that say how a study is searched, and what they become."""

from __future__ import annotations

from typing import Any

from experiments.config.compile import from_keywords, parse
from tests.experiments.files import EXPERIMENT, ids, own

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
