"""Identity: what a trial's numbers depend on changes its id, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.identity import TrialIds, canonical, digest, study_id, study_identity
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


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_to_the_last_bit(x):
    assert float(json.loads(canonical(x))) == x


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


def test_ids_are_fixed_for_good():
    """A change here orphans every recorded trial: raise ``identity.VERSION`` if it must be."""
    assert trial() == "4ec4862b62db35eff5c4"
    assert study_id(study_identity(**STUDY)) == "7fb2d7622182e04d84b5"
    assert digest({"a": 1}) == "015abd7f5cc57a2dd94b"


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


@pytest.mark.parametrize(
    "setting", ["precision=float64", "evaluation_ratio=1.1", "seed=1", "schedule=linear"]
)
def test_what_a_key_changes(tmp_path, setting):
    before, after = ids(own(tmp_path)), ids(load(tmp_path / "my.yaml", [setting]))
    assert not set(before) & set(after)


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
    (plan,) = experiment.plans()
    trials = plan.trials(0, 32)
    assert len({t.id for t in trials}) == len({t.seed for t in trials}) == 32
    assert {t.metaparameters["learning_rate"] for t in trials} == {0.1, 0.2}


def test_a_decay_length_is_in_it_as_steps(tmp_path):
    text = """\
workload: digits-mlp
grid: {batch_size: 8, optimizer: sgd}
search: {learning_rate: 0.1, decay: 0.5, end_factor: 0.01}
schedule: linear
"""
    short = own(tmp_path, text, "budget=100 steps").plans()[0].trial(0)
    long = own(tmp_path, text, "budget=200 steps").plans()[0].trial(0)
    stated = own(tmp_path, text.replace("decay: 0.5", "decay_steps: 50")).plans()[0].trial(0)
    assert short.metaparameters == {"learning_rate": 0.1, "decay_steps": 50, "end_factor": 0.01}
    assert short.id == stated.id != long.id


def test_the_code_of_a_workload_is_in_it_but_not_its_comments(tmp_path):
    file = folder(tmp_path)
    before = ids(load(file))
    (tmp_path / "my_model.py").write_text(WORKLOAD.replace("Forty", "40") + "# a comment\n")
    assert ids(load(file)) == before
    (tmp_path / "my_model.py").write_text(WORKLOAD.replace("/ 160", "/ 80"))
    assert not set(ids(load(file))) & set(before)


def test_an_earlier_source_may_be_kept(tmp_path):
    file = folder(tmp_path)
    old = load(file).plans()
    (tmp_path / "my_model.py").write_text(WORKLOAD.replace("/ 160", "/ 80"))
    kept = load(file).plans(source=old[0].identity["workload"]["source"])
    assert [p.study.id for p in kept] == [p.study.id for p in old]
    assert kept[0].trials(0, 2) == old[0].trials(0, 2)


def test_the_code_of_an_optimizer_is_in_its_trials_alone(tmp_path):
    file = folder(tmp_path)
    before = {p.study.id: p.study.optimizer for p in load(file).plans()}
    (tmp_path / "my_opt.py").write_text(OPTIMIZER.replace("-group", "-2 * group"))
    after = {p.study.id: p.study.optimizer for p in load(file).plans()}
    assert {before[i] for i in set(before) - set(after)} == {"my_opt.py:Sign"}
    assert {before[i] for i in set(before) & set(after)} == {"sgd", "momentum"}


def test_ids_of_recorded_trials(tmp_path):
    """As they were computed before files had local modules; they must never change."""
    first, *_, last = own(tmp_path).plans()
    assert (first.study.id, first.trial(0).id) == ("18c1663cd3639426e1f6", "c622d33e0cb75691ff25")
    assert (last.study.id, last.trial(0).id) == ("192f0444a1bda4872e70", "91a696f221615b53ca04")


def test_the_modules_that_files_import_are_in_it(tmp_path):
    file = folder(tmp_path)
    (tmp_path / "my_model.py").write_text("import layers\n" + WORKLOAD)
    (tmp_path / "my_opt.py").write_text("from rules import sign\n" + OPTIMIZER)
    (tmp_path / "layers.py").write_text("")
    (tmp_path / "rules.py").write_text("sign = 1\n")
    before = {p.study.id: p.study.optimizer for p in load(file).plans()}
    (tmp_path / "rules.py").write_text("sign = -1\n")
    after = {p.study.id: p.study.optimizer for p in load(file).plans()}
    assert {before[i] for i in set(before) - set(after)} == {"my_opt.py:Sign"}
    assert {before[i] for i in set(before) & set(after)} == {"sgd", "momentum"}
    source = load(file).plans()[0].identity["workload"]["source"]
    (tmp_path / "layers.py").write_text("x = 1\n")
    changed = load(file).plans()
    assert not {p.study.id for p in changed} & set(after)
    assert {p.study.id for p in load(file).plans(source=source)} == set(after)


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
    (plan,) = own(tmp_path, text).plans()
    assert "width" not in plan.identity["workload"]["fields"]
    assert {t.metaparameters["width"] for t in plan.trials(0, 64)} == set(range(2, 10))
    assert plan.study.workload.fields == {}


def test_a_fixed_field_is_one_of_the_study(tmp_path):
    text = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: sgd}
search: {width: 9}
"""
    (plan,) = own(tmp_path, text).plans()
    swept = own(tmp_path, text.replace("search: {width: 9}", "").replace("sgd", "sgd, width: 9"))
    assert plan.study.workload.fields == {"width": 9}
    assert plan.study.id == swept.plans()[0].study.id


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
    ("constant", "my_opt.py:Sign"): (
        "4ab1b89c40a089589198", "8d6c3f968ec46bb60768", "6e275c13a8173ce75784",
        "770c855eb654e68d74c4",
    ),
    ("linear", "sgd"): (
        "403b8779dba9ea977547", "d781d01956d7b70730ee", "230114b3330558d16491",
        "063a101326bd2361760b",
    ),
    ("linear", "my_opt.py:Sign"): (
        "267a9d48be384c2dd3ad", "d0541ddde04bc1895648", "56ac38237654e43ed9b3",
        "966608218eb0d63a5a40",
    ),
    ("cosine", "sgd"): (
        "e6d11d345ceccf04356b", "e79dedeb43200e5de268", "1176d7a888fe4a607659",
        "277bcf5e62d6371d919c",
    ),
    ("cosine", "my_opt.py:Sign"): (
        "692dd7ef2fe4703cfec5", "7c5f6e734995d7bfac6a", "f5ffa7e1bdfe2f9a9deb",
        "431940be272f77671b55",
    ),
}  # fmt: skip


def test_ids_of_recorded_schedules(tmp_path):
    """Studies, trials 0 and 3, searches; of the constant schedule as they were when the three were
    functions of one file, of the others since a decay ends with the budget after a warmup."""
    ids_now = {
        (plan.study.schedule, plan.study.optimizer): (
            *(plan.study.id, plan.trial(0).id, plan.trial(3).id),
            plan.study.search_id,
        )
        for plan in own(tmp_path, SCHEDULED).plans()
    }
    assert ids_now == RECORDED


def test_the_code_of_a_schedule_is_in_its_trials_alone(tmp_path):
    code = "from batchscale import Schedule\nclass Late(Schedule):\n    def shape(self, step):\n"
    text = """\
workload: my_model.py:MyModel
grid: {batch_size: 8, optimizer: sgd, schedule: [constant, late.py:Late]}
budget: 100 steps
"""
    late = tmp_path / "late.py"
    late.write_text(f"{code}        return 1.0\n")
    before = {p.study.schedule: p.study.id for p in own(tmp_path, text).plans()}
    late.write_text(f"{code}        # as it was\n        return 1.0\n")
    assert {p.study.schedule: p.study.id for p in own(tmp_path, text).plans()} == before
    named = own(tmp_path, text.replace(":Late", ":Late as late")).plans()
    assert {p.study.schedule: p.study.id for p in named} == before
    assert [p.study.schedule_label for p in named] == ["constant", "late"]
    late.write_text(f"{code}        return 0.5\n")
    after = {p.study.schedule: p.study.id for p in own(tmp_path, text).plans()}
    assert after["constant"] == before["constant"]
    assert after["late.py:Late"] != before["late.py:Late"]


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "wsd"])
def test_a_decay_after_a_warmup_is_another_study_than_it_was(tmp_path, name):
    """Once the share of its decay was of the whole budget; of other schedules nothing changed."""

    def identity_of(search):
        text = SCHEDULED.replace("[constant, linear, cosine]", name).split("search:")[0]
        (plan, _) = own(tmp_path, f"{text}search: {search}\nbudget: 100 steps\n").plans()
        return plan.identity["schedule"]

    moved = {"name": name, "decay": "after warmup"} if name in ("cosine", "linear") else name
    lengths = "decay: 0.5, " if name != "constant" else ""
    assert identity_of(f"{{{lengths}warmup: 0.1}}") == moved
    assert identity_of(f"{{{lengths}warmup_steps: {{integer: [0, 9]}}}}") == moved
    assert identity_of(f"{{{lengths}warmup: 0}}") == name
    assert identity_of("{learning_rate: 0.1}") == name
    if lengths:
        assert identity_of("{decay_steps: 50, warmup: 0.1}") == name
