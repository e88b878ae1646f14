"""The experiment file: what it says, what it need not say, and its resolved form."""

from __future__ import annotations

import pickle
import re

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compile import Experiment, from_keywords, load, parse
from experiments.config.sources import names
from experiments.config.yaml_lines import read, scalar, write
from experiments.errors import ExperimentError
from experiments.optimizers import get
from tests.experiments.files import EXPERIMENT, complaint, folder, ids, own
from workloads import WorkloadError
from workloads import load as load_workload

DESIGN = """\
workload: my_model.py:MyModel            # or a name: digits-mlp
grid:                                    # one study for each combination
  batch_size: 8..32                      # doubling; or a list; `full` = the training set
  optimizer: [sgd, momentum, adam, my_opt.py:Sign]
  width: [64, 256]                       # a field of the workload
search:                                  # tuned afresh in every study
  learning_rate: {log: [1e-4, 10]}
  adam: {learning_rate: {log: [1e-5, 1e-1]}}
schedule: constant                       # the default
trials: 64
budget: 50 epochs + 2000 steps
target: validation_error < 0.05
keep: 4
"""


def test_the_designs_example(tmp_path):
    studies = own(tmp_path, DESIGN).studies()
    assert len(studies) == 3 * 4 * 2
    assert {s.batch_size for s in studies} == {8, 16, 32}
    assert {s.workload.fields["width"] for s in studies} == {64, 256}
    assert {s.experiment for s in studies} == {"my"}
    assert studies[0].budget_steps == 50 * 5 + 2000
    spaces = {p.optimizer: p.notation() for p in studies}
    assert spaces["sgd"] == {"learning_rate": {"log": [1e-4, 10]}}
    assert spaces["adam"]["learning_rate"] == {"log": [1e-5, 0.1]}
    assert list(spaces["momentum"]) == ["learning_rate", "momentum"]
    signs = [p for p in studies if p.optimizer == "my_opt.py:Sign"]
    assert signs[0].search.space["learning_rate"].bounds == (1e-4, 10)
    assert signs[0].trial(0).metaparameters["power"] == 1.0


def test_the_first_five_lines_are_enough(tmp_path):
    study = own(tmp_path, EXPERIMENT).studies()[0]
    assert (study.trials, study.keep, study.schedule, study.engine) == (64, 4, "constant", "auto")
    assert (study.evaluation_ratio, study.stop_at_target) == (1.05, True)
    assert [str(t) for t in study.targets] == ["validation_error < 0.25"]
    assert study.technique == {"precision": "float32"}
    assert (study.layout.workers, study.layout.micro_batch) == (1, None)
    assert study.max_rows == 256
    assert len(study.draw(250, 300)) == 6
    assert study.trial(3) == study.draw(3, 4)[0]
    assert pickle.loads(pickle.dumps(study)) == study


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-2", -2), ("+3", 3),
        ("0x1f", 31), ("0o17", 15), ("017", 17), ("-.inf", float("-inf")), (".INF", float("inf")),
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("No", "No"),
        ("true", True), ("False", False), ("~", None), ("", None), ("null", None),
        ("1:30", "1:30"), ("2001-01-01", "2001-01-01"), ("1_000", "1_000"), ("8..64", "8..64"),
        ("1e", "1e"), ("e3", "e3"), (".", "."), ("inf", "inf"), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_plain_words(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)
    if text and text not in ("~", "null"):
        assert read(f"key: {text}", "x.yaml")[0] == {"key": value}


def test_quoted_words_are_words():
    assert read("a: '1e-3'\nb: \"true\"\nc: |\n  8\n", "x")[0] == {
        "a": "1e-3",
        "b": "true",
        "c": "8\n",
    }


def test_aliases_and_places():
    text = "a: &x\n  b: [1,\n    2]\nc: *x\n"
    value, places = read(text, "f")
    assert value == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}
    assert [places.at(p) for p in (("a",), ("a", "b"), ("a", "b", 1), ("a", "z"))] == [
        "f:1", "f:2", "f:3", "f:1",
    ]  # fmt: skip


@given(
    st.recursive(
        st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.from_regex(r"[a-z]\w{0,5}", fullmatch=True), inner)
        ),
        max_leaves=8,
    )
)
def test_what_is_written_is_read(value):
    assert read(write({"key": value}), "x")[0] == {"key": value}


GRIDS = {
    "8": [8],
    "[32, 8]": [8, 32],
    "8..32": [8, 16, 32],
    "8..39": [8, 16, 32],
    "3..24": [3, 6, 12, 24],
    "full": [40],
    "1..4, full": [1, 2, 4, 40],
    "[1..4, full]": [1, 2, 4, 40],
    "['1..4', 7, 16..32]": [1, 2, 4, 7, 16, 32],
    "16.0": [16],
}


@pytest.mark.parametrize("text", GRIDS)
def test_batch_sizes(tmp_path, text):
    grid = f"workload: my_model.py:MyModel\ngrid:\n  batch_size: {text}\n  optimizer: sgd\n"
    studies = own(tmp_path, grid).studies()
    assert [p.batch_size for p in studies] == GRIDS[text]


def test_targets_stand_easiest_first(tmp_path):
    hard = own(tmp_path, EXPERIMENT, "target=[validation_error < 0.1, validation_error < 0.2]")
    assert [t.value for t in hard.studies()[0].targets] == [0.2, 0.1]
    high = own(
        tmp_path, EXPERIMENT, "target=[validation_accuracy > 0.9, validation_accuracy > 0.8]"
    )
    assert [t.value for t in high.studies()[0].targets] == [0.8, 0.9]


def test_grid_of_training_algorithms(tmp_path):
    experiment = own(
        tmp_path,
        EXPERIMENT + "  schedule: [constant, linear, cosine]\n  precision: [float32, float64]\n"
        "search:\n  decay: {linear: [0.2, 0.4]}\n  linear: {end_factor: {log: [1e-4, 0.1]}}\n"
        "  momentum: {momentum: 0.9, decay: 0.3}\n  warmup: 0.1\n",
    )
    studies = {(p.optimizer, p.schedule, p.technique["precision"]): p for p in experiment.studies()}
    assert len(studies) == 3 * 3 * 2
    assert set(studies["sgd", "constant", "float64"].search.space) == {"learning_rate"}
    linear = studies["sgd", "linear", "float32"].search.space
    assert set(linear) == {"learning_rate", "decay", "end_factor"}
    assert set(studies["momentum", "cosine", "float32"].search.space) == {"learning_rate"}
    assert studies["momentum", "cosine", "float32"].search.fixed["decay"] == 0.3
    assert linear["decay"].bounds == (0.2, 0.4)
    trial = studies["momentum", "linear", "float32"].trial(0)
    budget = studies["momentum", "linear", "float32"].budget_steps
    left = budget - int(trial.metaparameters["warmup_steps"])
    assert trial.metaparameters["decay_steps"] == round(0.3 * left)
    assert trial.metaparameters["warmup_steps"] == round(0.1 * budget)
    assert "decay" not in trial.metaparameters


def without_a_download(name: str) -> bool:
    of_files = name.startswith("lm-") and not name.endswith(("-small", "-tiny"))
    return not of_files and not any(s in name for s in ("mnist", "cifar", "imagenet", "-images"))


LARGE = tuple(f"techniques-{of}" for of in ("digits", "text", "transfer", "compression"))
"""Thousands of trials."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else [])
        for name in names()
        if without_a_download(name)
    ],
)
def test_the_resolved_file_gives_the_same_trials(name, tmp_path):
    experiment = load(name)
    again = tmp_path / "again.yaml"
    again.write_text(experiment.to_yaml())
    assert ids(load(again)) == ids(experiment)
    assert load(again).to_yaml() == experiment.to_yaml()


def test_the_resolved_file_says_every_key(tmp_path):
    said = yaml.safe_load(own(tmp_path).to_yaml())
    unset = {"layout", "micro_batch", "ghost_batch", "files", "points", "technique", "rule"}
    unset |= {"gpus", "design", "program", "devices", "nodes", "resume", "metrics", "stop"}
    assert set(said) == set(Experiment.model_fields) - unset
    assert said["search"]["momentum"]["momentum"] == dict(get("momentum").space)["momentum"]


def test_the_widths_at_which_it_stops_change_no_trial(tmp_path):
    plain, stops = own(tmp_path), own(tmp_path, EXPERIMENT, "stop.min_steps=1.3")
    assert ids(stops) == ids(plain)
    assert yaml.safe_load(stops.to_yaml())["stop"] == {"min_steps": 1.3}
    assert {study.stops_itself for study in stops.studies()} == {True}


def test_settings(tmp_path):
    path = folder(tmp_path)
    experiment = load(
        path,
        [
            "trials=8",
            "grid.batch_size=1..4",
            "grid.optimizer=[sgd]",
            "search.sgd.learning_rate=0.5",
            "search.my_opt.py:Sign.power=2",
        ],
    )
    assert [p.batch_size for p in experiment.studies()] == [1, 2, 4] * 2
    assert experiment.trials == 8
    assert experiment.studies()[0].search.fixed == {"learning_rate": 0.5}
    assert experiment.search["my_opt.py:Sign"] == {"power": 2}
    assert load(path, ["trials=8", "trials="]).trials == 64


def test_keep_over_the_trials_is_noted(tmp_path):
    assert own(tmp_path, EXPERIMENT, "trials=2").notes == []
    (note,) = own(tmp_path, EXPERIMENT, "trials=2", "keep=4").notes
    assert "every trial stays exact" in note


def test_an_entry_of_search_that_nothing_uses_is_noted():
    """Sections had the last word, and --set search.learning_rate=0.1 did nothing."""
    (note,) = load("digits-small", ["search.learning_rate=0.1"]).notes
    assert note.startswith("search.learning_rate is not used")
    assert load("digits-small", ["search.learning_rate=0.1", "search.sgd="]).notes == []


def test_keywords(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path)
    kind = type(load_workload("my_model.py:MyModel", {}, tmp_path))
    experiment = from_keywords(
        workload=kind, optimizer=["sgd", torch.optim.RMSprop], batch_size="8..16", trials=16,
        width=(4, 8), learning_rate={"log": (1e-3, 1)}, keep=None, weight_decay=0.1,
    )  # fmt: skip
    assert experiment.name == "MyModel"
    assert experiment.keep is None
    assert experiment.workload == "my_model.py:MyModel"
    assert len(experiment.studies()) == 2 * 2 * 2
    said = parse(
        "workload: my_model.py:MyModel\ntrials: 16\nkeep: off\n"
        "grid: {batch_size: 8..16, optimizer: [sgd, RMSprop], width: [4, 8]}\n"
        "search: {learning_rate: {log: [1e-3, 1]}, weight_decay: 0.1}\n"
    )
    assert ids(said) == ids(experiment)


def test_keywords_of_an_object_and_of_a_name(tmp_path):
    folder(tmp_path)
    workload = load_workload("my_model.py:MyModel", {"width": 16}, tmp_path)
    (study,) = from_keywords(workload=workload, optimizer="sgd", batch_size=8).studies()
    assert study.identity["workload"]["fields"]["width"] == 16
    kind = type(load_workload("digits-mlp"))
    for spec in (kind, kind(), "digits-mlp"):
        assert from_keywords(workload=spec, optimizer="sgd", batch_size=range(1, 3)).workload == (
            "digits-mlp"
        )
    schedule = from_keywords(
        workload="digits-mlp", optimizer="sgd", batch_size=[8], schedule=["linear", "constant"]
    )
    assert len(schedule.studies()) == 2


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"trails": 8}, "unknown keyword 'trails'", "did you mean 'trials'?"),
        ({"epochs": 10}, "unknown keyword 'epochs'", "is its budget: "),
        ({"max_steps": 9}, "unknown keyword 'max_steps'", "is its budget: "),
        ({"lr": 0.1}, "nor an argument of its optimizers", "it is tuned, below search"),
        ({"batch_size": 0}, "grid.batch_size: batch size 0 is below 1", ""),
        ({"workload": object()}, "is neither a workload nor a name", "derive it"),
        ({"learning_rate": [0.1]}, "search.learning_rate: [0.1] is neither", "discrete"),
    ],
)
def test_keywords_that_cannot_be(values, message, hint):
    given = {"workload": "digits-mlp", "optimizer": "sgd", "batch_size": 8, **values}
    with pytest.raises(ExperimentError, match=re.escape(message)) as raised:
        from_keywords(**given)
    assert hint in (raised.value.hint or "")


def test_a_class_in_no_file():
    class Local(torch.optim.SGD):
        pass

    with pytest.raises(ExperimentError, match="is not defined in a file") as raised:
        from_keywords(workload="digits-mlp", optimizer=Local, batch_size=8)
    assert "%%writefile local.py" in (raised.value.hint or "")


def test_a_mapping():
    content = {"workload": "digits-mlp", "grid": {"batch_size": "8..16", "optimizer": "sgd"}}
    experiment = load(content, ["trials=2"])
    assert (experiment.name, experiment.trials, len(experiment.studies())) == ("digits-mlp", 2, 2)
    assert "trials" not in content


@pytest.mark.parametrize("stem", ["my own file", "_x", "ä"])
def test_a_files_name_becomes_the_name_of_a_folder(tmp_path, stem):
    experiment = load(folder(tmp_path, name=f"{stem}.yaml"))
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", experiment.name)


DIGITS = """\
workload: digits-mlp
grid:
  batch_size: 8..64
  optimizer: [sgd, momentum]
"""


def test_places_of_what_the_command_line_says(tmp_path):
    file = folder(tmp_path, DIGITS)
    said, _ = complaint(file, "grid.batch_size=0")
    assert said == "--set grid.batch_size=0: grid.batch_size: batch size 0 is below 1"
    said, hint = complaint(file, "trails=8")
    assert (said, hint) == ("--set trails=8: unknown key 'trails'", "did you mean 'trials'?")
    said, _ = complaint(file, "search.sgd.learning_rate={log: [1, 0]}")
    assert said.startswith("--set search.sgd.learning_rate={log: [1, 0]}: search.sgd.learning_rate")
    assert complaint(file, "trials")[0] == "--set trials: not KEY=VALUE"
    assert "trials is a value and has no keys" in complaint(file, "trials=8", "trials.a=1")[0]
    assert "not YAML" in complaint(file, "trials=[")[0]


def test_a_long_tag_is_cut(tmp_path):
    said, _ = complaint(folder(tmp_path, f"{DIGITS}trials: !{'x' * 5000} 8"))
    assert said == f"my.yaml:5: !{'x' * 59}… is a tag of YAML, and an experiment is plain data"


def test_the_section_of_a_schedule_says_which_form_its_length_has(tmp_path):
    search = "search: {decay_examples: 100, linear: {decay: 0.5}}"
    file = folder(tmp_path, f"{DIGITS}schedule: linear\n{search}\n")
    assert {study.search.fixed["decay"] for study in load(file).studies()} == {0.5}


def test_a_data_set_that_is_missing_passes_on(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    gone = "from workloads import WorkloadError\n        raise WorkloadError('no data set')\n"
    model.write_text(model.read_text().replace("x = torch.", f"{gone}        x = torch."))
    experiment = load(file)  # names and ranges are checked without the data
    with pytest.raises(WorkloadError, match="no data set"):
        experiment.studies()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ExperimentError, match="no experiment file") as raised:
        load(tmp_path / "gone.yaml")
    assert "batchscale list experiments" in (raised.value.hint or "")
    with pytest.raises(ExperimentError, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ExperimentError, match="cannot be read: not UTF-8"):
        load(tmp_path / "latin.yaml")
    with pytest.raises(ExperimentError, match="no experiment is called 'digit'") as raised:
        load("digit")
    assert "did you mean 'digits'?" in (raised.value.hint or "")


def test_data_is_read_once_for_each_value_of_its_fields(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    log = tmp_path / "log"
    count = f"with open({str(log)!r}, 'a') as log: log.write('x')\n        x = torch."
    text = model.read_text().replace("x = torch.", count)
    model.write_text(text.replace("arange(160.0)", "arange(160.0, dtype=torch.float64)"))
    load(file, ["target=train_accuracy > 0.5"]).studies()
    assert log.read_text() == "xx"


def test_the_model_whose_metrics_are_asked_is_always_the_same(tmp_path):
    """Else whether a sweep of a model that fails for some weights starts would be luck."""
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    log = tmp_path / "log"
    draw = f"with open({str(log)!r}, 'a') as log: log.write(f'{{torch.rand(())}} ')\n        "
    model.write_text(model.read_text().replace("return nn.Seq", draw + "return nn.Seq"))
    for seed in (0, 1):
        torch.manual_seed(seed)
        load(file).studies()
    assert len(log.read_text().split()) > 1
    assert len(set(log.read_text().split())) == 1
