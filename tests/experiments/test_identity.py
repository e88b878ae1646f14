"""Identity: what a trial's numbers depend on changes its id, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.canonical import TrialIds, canonical, digest
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.identity import study_identity
from tests.experiments.files import OPTIMIZER, WORKLOAD, folder, ids, own

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_canonical_json_is_exact(value):
    assert json.loads(canonical(value)) == value


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_means_nothing(value):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_equal_values_have_one_form():
    assert (
        canonical(1.0) == canonical(1) == canonical(np.float64(1)) == canonical(np.int64(1)) == "1"
    )
    assert canonical(-0.0) == "0"
    assert canonical(True) == "true" != canonical(1)
    assert canonical((1, 2)) == canonical([1, 2])
    assert canonical(0.1) == "0.1"
    assert canonical(1e22) == "1e+22"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_has_no_form_is_refused(value):
    with pytest.raises(ExperimentError, match="cannot be part"):
        canonical({"x": value})


STUDY: dict[str, Any] = {
    "workload": {"name": "digits-mlp", "fields": {"label_smoothing": 0.0}, "version": "1"},
    "optimizer": {"name": "sgd"},
    "schedule": "constant",
    "technique": {"precision": "float32"},
    "batch_size": 64,
    "evaluation_ratio": 1.05,
}
POINT = {"learning_rate": 0.1}


def trial(point=POINT, seed_index=(0, 0), **changes):
    return TrialIds(study_identity(**{**STUDY, **changes})).id(canonical(point), seed_index)


@given(
    point=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)),
    seed_index=st.tuples(st.integers(0, 9), st.integers(-9, 9)),
    extra=st.text(max_size=5),
)
def test_the_fast_way_to_an_id_is_the_digest_of_the_whole(point, seed_index, extra):
    study = study_identity(**{**STUDY, "technique": {"precision": "float32", extra: extra}})
    whole = {**study, "metaparameters": point, "seed_index": list(seed_index)}
    assert TrialIds(study).id(canonical(point), seed_index) == digest(whole)


@pytest.mark.parametrize(
    "other",
    [
        trial(workload={**STUDY["workload"], "version": "2"}),
        trial(workload={**STUDY["workload"], "fields": {"label_smoothing": 0.1}}),
        trial(workload={**STUDY["workload"], "name": "digits-softmax"}),
        trial(optimizer={"name": "adam"}),
        trial(optimizer={"name": "sgd", "source": "0"}),
        trial(schedule="linear"),
        trial(technique={"precision": "float64"}),
        trial(technique={"precision": "float32", "ghost_batch": 32}),
        trial(batch_size=65),
        trial(evaluation_ratio=1.1),
        trial(point={"learning_rate": 0.1 + 2**-56}),
        trial(point={"learning_rate": 0.1, "momentum": 0.9}),
        trial(seed_index=(1, 0)),
        trial(seed_index=(0, 1)),
    ],
)
def test_what_the_numbers_depend_on_is_in_it(other):
    assert other != trial()
    assert len(other) == 20
    assert set(other) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "setting",
    [
        "name=another",
        "keep=2",
        "keep=off",
        "budget=7 epochs",
        "target=validation_error < 0.5",
        "stop_at_target=false",
        "trials=99",
        "engine=module",
        "workers=2",
        "micro_batch=4",
        "precision=float32",
        "files=[my_opt.py]",
        "schedule=constant",
        "evaluation_ratio=1.05",
        "seed=0",
    ],
)
def test_what_they_do_not_depend_on_is_not(tmp_path, setting):
    assert ids(own(tmp_path)) == ids(load(tmp_path / "my.yaml", [setting]))


def test_what_a_key_changes(tmp_path):
    before = set(ids(own(tmp_path)))
    for setting in ("precision=float64", "evaluation_ratio=1.1", "seed=1", "schedule=linear"):
        assert not before & set(ids(load(tmp_path / "my.yaml", [setting])))


def test_adding_batch_sizes_trials_and_optimizers_changes_no_trial(tmp_path):
    before = ids(own(tmp_path))
    grown = [
        "grid.batch_size=4..32, full",
        "trials=256",
        "grid.optimizer=[adam, sgd, momentum, my_opt.py:Sign]",
    ]
    assert set(before) < set(ids(load(tmp_path / "my.yaml", grown)))


def test_a_seed_index_tells_equal_points_apart(tmp_path):
    experiment = own(
        tmp_path,
        """\
workload: digits-mlp
grid: {batch_size: 8, optimizer: sgd}
search: {learning_rate: {discrete: [0.1, 0.2]}}
trials: 8
""",
    )
    (plan,) = experiment.studies()
    trials = plan.draw(0, 32)
    assert len({t.id for t in trials}) == len({t.seed for t in trials}) == 32
    assert {t.metaparameters["learning_rate"] for t in trials} == {0.1, 0.2}


IMPORTING = {
    "my_model.py": "import layers\n" + WORKLOAD,
    "my_opt.py": "from rules import sign\n" + OPTIMIZER,
    "layers.py": "x = 1\n",
    "rules.py": "sign = 1\n",
}


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("my_model.py", "Forty", "40", set()),  # of a docstring
        ("my_model.py", "/ 160", "/ 80", {"sgd", "momentum", "my_opt.py:Sign"}),
        ("layers.py", "1", "2", {"sgd", "momentum", "my_opt.py:Sign"}),
        ("my_opt.py", "-group", "-2 * group", {"my_opt.py:Sign"}),
        ("rules.py", "1", "-1", {"my_opt.py:Sign"}),
    ],
)
def test_the_code_of_files_and_of_what_they_import_is_in_it(tmp_path, name, old, new, changed):
    """Of an optimizer, in its trials alone. Which code counts: ``tests/workloads``."""
    file = folder(tmp_path)
    for each, text in IMPORTING.items():
        (tmp_path / each).write_text(text)
    before = {p.id: p.optimizer for p in load(file).studies()}
    source = load(file).studies()[0].identity["workload"]["source"]
    (tmp_path / name).write_text(IMPORTING[name].replace(old, new))
    after = {p.id: p.optimizer for p in load(file).studies()}
    assert {before[i] for i in set(before) - set(after)} == changed
    if name in ("my_model.py", "layers.py"):  # a sweep may go on with the source that it had
        assert {p.id for p in load(file).studies(source=source)} == set(before)


def test_where_a_file_stands_is_not_in_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert ids(own(tmp_path / "a")) == ids(own(tmp_path / "b"))


def test_a_tuned_field_is_a_metaparameter(tmp_path):
    text = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: sgd}
search: {width: {integer: [2, 9]}}
"""
    (plan,) = own(tmp_path, text).studies()
    assert "width" not in plan.identity["workload"]["fields"]
    assert {t.metaparameters["width"] for t in plan.draw(0, 64)} == set(range(2, 10))
    assert plan.workload.fields == {}


def test_a_fixed_field_is_one_of_the_study(tmp_path):
    text = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: sgd}
search: {width: 9}
"""
    (plan,) = own(tmp_path, text).studies()
    swept = own(tmp_path, text.replace("search: {width: 9}", "").replace("sgd", "sgd, width: 9"))
    assert plan.workload.fields == {"width": 9}
    assert plan.id == swept.studies()[0].id


SCHEDULED = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: [sgd, my_opt.py:Sign], schedule: [constant, linear, cosine]}
search:
  warmup: {linear: [0, 0.2]}
  linear: {end_factor: {log: [1e-4, 0.1]}}
budget: 100 steps
"""
RECORDED = {
    ("constant", "sgd"): (
        "18c1663cd3639426e1f6", "a5ae1e1a4df9f90637a7", "c19d544b6bf1a4aee654",
        "50984bc0c4ccc9d2528e",
    ),
    ("cosine", "my_opt.py:Sign"): (
        "692dd7ef2fe4703cfec5", "7c5f6e734995d7bfac6a", "f5ffa7e1bdfe2f9a9deb",
        "431940be272f77671b55",
    ),
}  # fmt: skip


def test_ids_of_recorded_schedules(tmp_path):
    """Studies, trials 0 and 3, searches, of users' files; those of packaged experiments are held by
    ``tests/contract``."""
    plans = {(plan.schedule, plan.optimizer): plan for plan in own(tmp_path, SCHEDULED).studies()}
    assert len(plans) == 6
    for name, recorded in RECORDED.items():
        plan = plans[name]
        ids_now = (plan.id, plan.trial(0).id, plan.trial(3).id, plan.search.id)
        assert ids_now == recorded


def test_the_code_of_a_schedule_is_in_its_trials_alone(tmp_path):
    code = "from batchscale import Schedule\nclass Late(Schedule):\n    def shape(self, step):\n"
    text = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: sgd, schedule: [constant, late.py:Late]}
budget: 100 steps
"""
    late = tmp_path / "late.py"
    late.write_text(f"{code}        return 1.0\n")
    before = {p.schedule: p.id for p in own(tmp_path, text).studies()}
    late.write_text(f"{code}        # as it was\n        return 1.0\n")
    assert {p.schedule: p.id for p in own(tmp_path, text).studies()} == before
    named = own(tmp_path, text.replace(":Late", ":Late as late")).studies()
    assert {p.schedule: p.id for p in named} == before
    assert [p.schedule_label for p in named] == ["constant", "late"]
    late.write_text(f"{code}        return 0.5\n")
    after = {p.schedule: p.id for p in own(tmp_path, text).studies()}
    assert after["constant"] == before["constant"]
    assert after["late.py:Late"] != before["late.py:Late"]


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "wsd"])
def test_a_decay_after_a_warmup_is_another_study_than_it_was(tmp_path, name):
    """Once the share of its decay was of the whole budget; of other schedules nothing changed."""

    def identity_of(search):
        text = SCHEDULED.replace("[constant, linear, cosine]", name).split("search:")[0]
        (plan, _) = own(tmp_path, f"{text}search: {search}\nbudget: 100 steps\n").studies()
        return plan.identity["schedule"]

    moved = {"name": name, "decay": "after warmup"} if name in ("cosine", "linear") else name
    lengths = "decay: 0.5, " if name != "constant" else ""
    assert identity_of(f"{{{lengths}warmup: 0.1}}") == moved
    assert identity_of(f"{{{lengths}warmup_steps: {{integer: [0, 9]}}}}") == moved
    assert identity_of(f"{{{lengths}warmup: 0}}") == name
    assert identity_of("{learning_rate: 0.1}") == name
    if lengths:
        assert identity_of("{decay_steps: 50, warmup: 0.1}") == name
