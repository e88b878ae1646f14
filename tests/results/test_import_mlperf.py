"""``import mlperf``: a tree in the layout of mlcommons/logging, its units and odd entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import results
from results.errors import ResultsError
from results.extensions import IMPORTS


def entry(benchmark: str, size: int, values: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "Benchmark": benchmark,
        "Creator": "NVIDIA",
        "When": "before 5.0",
        "Platform": "8 of something",
        "BS": size,
        "Hyperparams": {"opt_base_learning_rate": 0.1, "opt_name": "SGD"},
        "Epochs to converge": values,
        **more,
    }


class Checkout:
    """``mlperf_logging/rcp_checker`` of a checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, folder: str, benchmark: str, *entries: dict[str, Any]) -> Path:
        path = self.root / "mlperf_logging" / "rcp_checker" / folder / f"rcps_{benchmark}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = {f"{benchmark}_ref_{each.get('BS')}": each for each in entries}
        path.write_text(json.dumps(named))
        return path


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "logging")


@pytest.fixture
def small(checkout: Checkout) -> Checkout:
    checkout.put(
        "training_5.0.0", "bert", entry("bert", 256, [2560, 2816]), entry("bert", 512, [3072])
    )
    checkout.put("hpc_3.0.0", "cosmoflow", *(entry("cosmoflow", b, [20]) for b in (32, 64, 128)))
    return checkout


def test_runs_are_trials_of_their_own(small: Checkout, tmp_path: Path) -> None:
    done = IMPORTS.get("mlperf")(small.root, tmp_path / "runs")
    assert (done.experiment, done.trials, done.studies) == ("mlperf", 6, 5)
    run = results.open(tmp_path / "runs")
    trials = run.trials[run.trials.workload == "bert"]
    assert trials.batch_size.tolist() == [256, 256, 512]
    assert trials.steps_to_target.tolist() == [10.0, 11.0, 6.0]
    assert trials.examples_run.tolist() == [2560, 2816, 3072]
    assert set(run.trials.role) == {"repeat"}
    assert set(run.trials.optimizer) == {"sgd"}
    told = json.loads(trials.as_published.iloc[1])
    assert told["value"] == 2816
    assert told["unit"] == "sample"
    assert told["version"] == "training_5.0.0"
    assert told["Creator"] == "NVIDIA"
    assert json.loads(trials.metaparameters.iloc[0])["opt_base_learning_rate"] == 0.1
    assert set(run.trials.submitter) == {"NVIDIA"}
    source = run.sources.iloc[0]
    assert source.licence == "Apache-2.0"
    assert "training_5.0.0/rcps_bert.json" in source.notes
    assert set(run.trials.recipe.dropna()) == {"changed"}


def test_the_same_again_does_nothing_and_a_newer_checkout_replaces(
    small: Checkout, tmp_path: Path
) -> None:
    root = tmp_path / "runs"
    IMPORTS.get("mlperf")(small.root, root)
    assert IMPORTS.get("mlperf")(small.root, root).fresh is False
    small.put("training_5.1.0", "bert", entry("bert", 256, [2560]))
    assert IMPORTS.get("mlperf")(small.root, root).fresh is True
    trials = results.open(root).trials
    assert trials[trials.workload == "bert"].steps_to_target.tolist() == [10.0]
    assert len(trials) == 4


@pytest.mark.parametrize("inner", ["", "mlperf_logging", "mlperf_logging/rcp_checker"])
def test_any_folder_on_the_way_will_do(small: Checkout, tmp_path: Path, inner: str) -> None:
    assert IMPORTS.get("mlperf")(small.root / inner, tmp_path / "runs").trials == 6


def test_the_newest_version_counts_also_where_it_was_renamed(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.put("training_1.1.0", "ssd", entry("ssd", 1024, [50]))  # another model, on COCO
    checkout.put("training_4.1.0", "ssd", entry("ssd", 256, [4]))
    checkout.put("training_5.0.0", "retinanet", entry("retinanet", 256, [5]))
    checkout.put("training_9.0.0", "bert", entry("bert", 256, [256]))
    checkout.put("training_10.0.0", "bert", entry("bert", 256, [512]))
    checkout.put("training_3.1.0", "stable_diffusion", entry("sd", 512, [2000]))
    IMPORTS.get("mlperf")(checkout.root, tmp_path / "runs")
    trials = results.open(tmp_path / "runs").trials.set_index("workload")
    assert trials.steps_to_target["bert"] == 2
    assert trials.steps_to_target["retinanet"] == 5 * 1170301 / 256
    assert trials.steps_to_target["ssd"] == 50 / 1024
    assert trials.steps_to_target["stable_diffusion"] == 2000
    assert trials.examples_run["stable_diffusion"] == 2000 * 512
    assert len(trials) == 4


def test_samples_by_name_and_a_unit_that_is_given(checkout: Checkout, tmp_path: Path) -> None:
    named = {**entry("flux1", 64, []), "samples to converge": [6400]}
    del named["Epochs to converge"]
    checkout.put("training_6.0.0", "flux1", named)
    checkout.put("training_6.0.0", "novel", entry("novel", 10, [300]))
    with pytest.raises(ResultsError, match="novel_ref_10: the unit that novel counts in") as caught:
        IMPORTS.get("mlperf")(checkout.root, tmp_path / "runs")
    assert "--map BENCHMARK=UNIT" in str(caught.value.hint)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ResultsError, match="--map novel=sheep: 'sheep' is not a unit") as caught:
        IMPORTS.get("mlperf")(checkout.root, tmp_path / "runs", columns={"novel": "sheep"})
    assert caught.value.hint == "one of epoch, sample, token, step"
    IMPORTS.get("mlperf")(checkout.root, tmp_path / "runs", columns={"novel": "sample"})
    trials = results.open(tmp_path / "runs").trials.set_index("workload")
    assert trials.steps_to_target.to_dict() == {"flux1": 100.0, "novel": 30.0}


def test_unet3d_counted_in_epochs_once(checkout: Checkout, tmp_path: Path) -> None:
    checkout.put("training_3.0.0", "unet3d", entry("unet3d", 32, [1600]))
    IMPORTS.get("mlperf")(checkout.root, tmp_path / "runs")
    trials = results.open(tmp_path / "runs").trials
    assert trials.steps_to_target.tolist() == [50.0]
    assert trials.examples_run.isna().all()
    (note,) = json.loads(results.open(tmp_path / "runs").studies.notes[0])
    assert note.startswith("the number of examples an epoch is not known")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"BS": "many"}, "BS is 'many', not a whole number"),
        ({"BS": 0}, "BS is 0, not a whole number of at least 1"),
        ({"BS": None}, "BS is None"),
        ({"Epochs to converge": []}, 'has no list "Epochs to converge"'),
        ({"Epochs to converge": 4}, 'has no list "Epochs to converge"'),
        ({"Epochs to converge": [2560, None]}, "None is not a number above 0"),
        ({"Epochs to converge": [2560, -1]}, "-1 is not a number above 0"),
        ({"Epochs to converge": [2560, True]}, "True is not a number above 0"),
        ({"Epochs to converge": [25]}, "25 samples are less than one batch of 256"),
        ({"Hyperparams": [1]}, "its Hyperparams are not an object"),
        (
            {"Benchmark": "resnet", "Epochs to converge": [2e6]},
            "2e+06 cannot be a number of epochs",
        ),
    ],
)
def test_entries_without_a_place_are_named_and_nothing_is_written(
    small: Checkout, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = small.put("training_7.0.0", "bert", {**entry("bert", 256, [2560]), **change})
    with pytest.raises(ResultsError) as caught:
        IMPORTS.get("mlperf")(small.root, tmp_path / "runs")
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "bert_ref_" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()


def test_several_are_counted(small: Checkout, tmp_path: Path) -> None:
    small.put("training_7.0.0", "bert", *(entry("bert", size, []) for size in (1, 2, 3)))
    with pytest.raises(ResultsError, match=r"bert_ref_1: .* \(and 2 more\)$"):
        IMPORTS.get("mlperf")(small.root, tmp_path / "runs")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{\n"a": ', "line 2: not JSON"),
        ("[1, 2]", "is not an object of entries by name"),
        ('{"a": {"BS": 1}}', "a has no Benchmark"),
        ('{"a": 3}', "a has no Benchmark"),
        ('{"a": {}, "a": {}}', "'a' occurs twice"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_files_that_are_none(small: Checkout, tmp_path: Path, text: str, says: str) -> None:
    path = small.put("training_7.0.0", "bert")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ResultsError) as caught:
        IMPORTS.get("mlperf")(small.root, tmp_path / "runs")
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no folder"):
        IMPORTS.get("mlperf")(tmp_path / "nowhere", tmp_path / "runs")
    (tmp_path / "empty" / "training_6.0.0").mkdir(parents=True)
    with pytest.raises(ResultsError, match=r"holds no rcps_<benchmark>\.json") as caught:
        IMPORTS.get("mlperf")(tmp_path / "empty", tmp_path / "runs")
    assert "mlperf_logging/rcp_checker" in str(caught.value.hint)
    assert not (tmp_path / "runs").exists()
