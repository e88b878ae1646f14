"""What ``--set`` and files that cannot be read get, and what is asked of a workload for a check."""

from __future__ import annotations

import pytest
import torch

from experiments.config.compile import load
from experiments.errors import ExperimentError
from tests.experiments.files import folder
from workloads import WorkloadError


def complaint(tmp_path, text, *settings):
    """What is said of that text, without the folder's name, and the hint."""
    file = folder(tmp_path, text)
    with pytest.raises(ExperimentError) as raised:
        load(file, settings).plans()
    message = str(raised.value)
    assert "\n" not in message
    assert "\n" not in (raised.value.hint or "")
    return message.replace(f"{tmp_path}/", ""), raised.value.hint or ""


DIGITS = """\
workload: digits-mlp
grid:
  batch_size: 8..64
  optimizer: [sgd, momentum]
"""


def test_places_of_what_the_command_line_says(tmp_path):
    said, _ = complaint(tmp_path, DIGITS, "grid.batch_size=0")
    assert said == "--set grid.batch_size=0: grid.batch_size: batch size 0 is below 1"
    said, hint = complaint(tmp_path, DIGITS, "trails=8")
    assert (said, hint) == ("--set trails=8: unknown key 'trails'", "did you mean 'trials'?")
    said, _ = complaint(tmp_path, DIGITS, "search.sgd.learning_rate={log: [1, 0]}")
    assert said.startswith("--set search.sgd.learning_rate={log: [1, 0]}: search.sgd.learning_rate")
    assert complaint(tmp_path, DIGITS, "trials")[0] == "--set trials: not KEY=VALUE"
    assert (
        "trials is a value and has no keys"
        in complaint(tmp_path, f"{DIGITS}trials: 8", "trials.a=1")[0]
    )
    assert "not YAML" in complaint(tmp_path, DIGITS, "trials=[")[0]


def test_a_long_tag_is_cut(tmp_path):
    said, _ = complaint(tmp_path, f"{DIGITS}trials: !{'x' * 5000} 8")
    assert said == f"my.yaml:5: !{'x' * 59}… is a tag of YAML, and an experiment is plain data"


def test_the_section_of_a_schedule_says_which_form_its_length_has(tmp_path):
    search = "search: {decay_examples: 100, linear: {decay: 0.5}}"
    file = folder(tmp_path, f"{DIGITS}schedule: linear\n{search}\n")
    assert {plan.fixed["decay"] for plan in load(file).plans()} == {0.5}


def test_a_data_set_that_is_missing_passes_on(tmp_path):
    file = folder(tmp_path)
    model = tmp_path / "my_model.py"
    gone = "from workloads import WorkloadError\n        raise WorkloadError('no data set')\n"
    model.write_text(model.read_text().replace("x = torch.", f"{gone}        x = torch."))
    experiment = load(file)  # names and ranges are checked without the data
    with pytest.raises(WorkloadError, match="no data set"):
        experiment.plans()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ExperimentError, match="no experiment file") as raised:
        load(tmp_path / "gone.yaml")
    assert "digits" in (raised.value.hint or "")
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
    load(file, ["target=train_accuracy > 0.5"]).plans()
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
        load(file).plans()
    assert len(log.read_text().split()) > 1
    assert len(set(log.read_text().split())) == 1
