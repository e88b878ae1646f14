"""What optimizers are called: by their class or by a display name, never by their file."""

from __future__ import annotations

from pathlib import Path

import pytest

import results as dataset
from experiments import optimizers
from experiments.config.compile import Experiment, load
from experiments.errors import ExperimentError
from experiments.execution.sweep import Summary, sweep
from experiments.records.planned import planned
from experiments.records.snapshots import settings_hash
from experiments.records.status import status
from experiments.scheduling.messages import Event, Note
from tests.experiments.fakes import FakeTraining
from tests.experiments.files import EXPERIMENT, folder, ids, own

AS = EXPERIMENT.replace("my_opt.py:Sign", "my_opt.py:Sign as Sign-1")


def labels(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(str(each.row["optimizer"]) for each in planned(experiment)))


@pytest.mark.parametrize(
    ("text", "name", "label"),
    [
        ("sgd", "sgd", "sgd"),
        ("adam as Adam-default", "adam", "Adam-default"),
        ("RMSprop", "RMSprop", "RMSprop"),
        ("my_opt.py:Sign", "my_opt.py:Sign", "Sign"),
        ("my_opt.py:Sign as Sign, decayed", "my_opt.py:Sign", "Sign, decayed"),
        ("../runs as is/my_opt.py:Sign", "../runs as is/my_opt.py:Sign", "Sign"),
        ("../runs as is/my_opt.py:Sign  as  S ", "../runs as is/my_opt.py:Sign", "S"),
    ],
)
def test_an_optimizer_is_called_by_its_class_or_by_its_display_name(
    tmp_path: Path, text: str, name: str, label: str
) -> None:
    base = tmp_path / "here"
    for place in (base, tmp_path / "runs as is"):
        place.mkdir()
        folder(place)
    optimizer = optimizers.get(text, str(base))
    assert (optimizer.name, optimizer.label) == (name, label)
    assert optimizers.label(text) == label


def test_rows_and_labels_have_the_name_and_identities_do_not(tmp_path: Path) -> None:
    plain, named = own(tmp_path), own(tmp_path, AS)
    assert labels(plain) == ["sgd", "momentum", "Sign"]
    assert labels(named) == ["sgd", "momentum", "Sign-1"]
    assert "Sign-1, width 8, batch 32" in [each.label for each in planned(named)]
    assert ids(named) == ids(plain)
    one, other = plain.studies()[-1], named.studies()[-1]
    assert one.optimizer == other.optimizer == "my_opt.py:Sign"
    assert one.optimizer_label == "Sign"
    assert settings_hash(one) == settings_hash(other)  # snapshots of either are of use


@pytest.mark.parametrize("key", ["Sign-1", "my_opt.py:Sign"])
@pytest.mark.parametrize("part", ["search", "points"])
def test_parts_of_an_optimizer_are_named_by_its_label_or_its_file(
    tmp_path: Path, part: str, key: str
) -> None:
    said = {
        "search": f"search: {{{key}: {{power: 3}}}}\n",
        "points": f"points:\n  sgd: [{{learning_rate: 1}}]\n  momentum: [{{learning_rate: 1, "
        f"momentum: 0.5}}]\n  {key}: [{{learning_rate: 1, power: 3}}]\n",
    }[part]
    experiment = own(tmp_path, AS + said)
    assert experiment.studies()[-1].search.fixed["power"] == 3 if part == "search" else True
    assert experiment.studies()[-1].draw(0, 1)[0].metaparameters["power"] == 3


def test_settings_and_extending_files_name_it_by_its_label(tmp_path: Path) -> None:
    text = AS + "search: {Sign-1: {power: 3}}\n"
    base = folder(tmp_path, text, "base.yaml")
    assert load(base, ["search.Sign-1.power=5"]).studies()[-1].search.fixed["power"] == 5
    narrowed = load(base, ["grid.optimizer=[sgd, my_opt.py:Sign as Sign-1]"])
    assert labels(narrowed) == ["sgd", "Sign-1"]
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\nsearch: {Sign-1: {learning_rate: 0.5}}\n")
    assert load(child).studies()[-1].search.fixed == {"learning_rate": 0.5, "power": 3}


def test_a_grid_that_leaves_it_out_leaves_out_what_is_searched_of_it(tmp_path: Path) -> None:
    base = folder(tmp_path, AS + "search: {Sign-1: {power: 3}}\n", "base.yaml")
    assert labels(load(base, ["grid.optimizer=[sgd]"])) == ["sgd"]
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\ngrid: {optimizer: [momentum]}\n")
    assert labels(load(child)) == ["momentum"]


def swept(tmp_path: Path, optimizer: str, seen: list[Event] | None = None, **more: int) -> Summary:
    """A sweep without training, of ``optimizer`` alone at one batch size."""
    folder(tmp_path)
    content = {
        "name": "mine",
        "workload": "my_model.py:MyModel",
        "grid": {"batch_size": [8], "optimizer": [optimizer]},
        "search": {"learning_rate": {"linear": [0.05, 0.5]}},
        "budget": "100 steps",
        "trials": 4,
        **more,
    }
    observer = (lambda _: None) if seen is None else seen.append
    return sweep(
        load(content), results=tmp_path / "runs", address="none", trainer=FakeTraining,
        observer=observer,
    )  # fmt: skip


def test_results_hold_the_name_and_a_new_one_is_theirs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert swept(tmp_path, "my_opt.py:Sign").trained == 4
    found = dataset.open(tmp_path / "runs")
    before = found.measurements.drop(columns=["run"])
    assert set(found.trials["optimizer"]) == set(found.studies["optimizer"]) == {"Sign"}

    seen: list[Event] = []
    assert swept(tmp_path, "my_opt.py:Sign as Sign-1", seen, trials=6).trained == 2
    said = [event.text for event in seen if isinstance(event, Note)]
    assert said[0] == "4 trials are recorded under the new name of an optimizer or a schedule."
    found = dataset.open(tmp_path / "runs")
    assert set(found.trials["optimizer"]) == set(found.studies["optimizer"]) == {"Sign-1"}
    assert len(found.trials) == 6
    after = found.measurements.drop(columns=["run"])
    after = after[after["trial"].isin(before["trial"])]
    order = ["trial", "step"]
    assert (
        after.sort_values(order, ignore_index=True)
        .astype(object)
        .equals(before.sort_values(order, ignore_index=True).astype(object))
    )
    assert status(tmp_path / "runs").added_up()["optimizer"].tolist() == ["Sign-1"]


def test_a_new_name_does_not_hide_that_the_workload_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    swept(tmp_path, "my_opt.py:Sign")
    from tests.experiments import files

    monkeypatch.setattr(files, "WORKLOAD", files.WORKLOAD.replace("/ 160", "/ 150"))
    with pytest.raises(ExperimentError, match="has changed since 4 trials of 1 study were"):
        swept(tmp_path, "my_opt.py:Sign as Sign-1")
