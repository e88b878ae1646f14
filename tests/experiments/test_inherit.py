"""``extends``: what is merged, where errors point to, and what cannot be extended."""

from __future__ import annotations

import pytest

from experiments.config.compile import load
from experiments.errors import ExperimentError
from tests.experiments.files import complaint, folder

BASE = """\
name: the-base
workload: digits-mlp
grid:
  batch_size: [8, 16, 32]
  optimizer: [sgd, momentum]
  label_smoothing: [0, 0.1]
search:
  learning_rate: {log: [1e-3, 1]}
  momentum:
    learning_rate: {log: [1e-4, 0.1]}
    momentum: {reverse_log: [0.5, 0.9]}
trials: 16
keep: 8
"""


def extended(tmp_path, text: str, base: str = BASE, *settings: str):
    (tmp_path / "base.yaml").write_text(base)
    return load(folder(tmp_path, text), settings)


def test_a_file_says_only_how_it_differs(tmp_path):
    of = extended(
        tmp_path,
        "extends: base.yaml\n"
        "grid:\n  batch_size: [64]\n"
        "search:\n  momentum: {momentum: 0.9}\n"
        "trials: 4\n",
    )
    assert (of.name, of.trials, of.keep, of.workload) == ("my", 4, 8, "digits-mlp")
    assert of.grid == {
        "batch_size": [64], "optimizer": ["sgd", "momentum"], "label_smoothing": [0, 0.1]
    }  # fmt: skip
    assert of.search["momentum"] == {"learning_rate": {"log": [1e-4, 0.1]}, "momentum": 0.9}
    assert "extends" not in of.to_yaml()


def test_ranges_are_replaced_whole_and_empty_values_take_keys_out(tmp_path):
    of = extended(
        tmp_path,
        "extends: base.yaml\n"
        "grid: {label_smoothing: }\n"
        "search: {learning_rate: {linear: [0.1, 1]}, momentum: }\n"
        "keep:\n",
    )
    assert of.search == {"learning_rate": {"linear": [0.1, 1]}}
    assert "label_smoothing" not in of.grid
    assert of.keep == 4
    wide = extended(tmp_path, "extends: base.yaml\nsearch: {momentum: {reverse_log: [0.1, 0.2]}}\n")
    assert wide.search["momentum"] == {"reverse_log": [0.1, 0.2]}  # the metaparameter's, of all


def test_files_that_extend_a_file_that_extends_one_that_comes_along(tmp_path):
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "middle.yaml").write_text("extends: ../base.yaml\nkeep: 2\n")
    of = extended(tmp_path, "extends: deep/middle.yaml\ntrials: 3\n", "extends: digits-small\n")
    assert (of.keep, of.trials, of.name) == (2, 3, "my")
    assert of.grid["optimizer"] == ["sgd", "momentum"]
    small = load({"extends": "digits-small", "trials": 3})
    assert (small.trials, small.grid) == (3, of.grid)


def test_the_command_line_comes_last(tmp_path):
    of = extended(tmp_path, "extends: base.yaml\ntrials: 4\n", BASE, "trials=2", "keep=")
    assert (of.trials, of.keep) == (2, 4)


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "~/.aws/credentials", "../secret.txt", "base", "base.yaml.d/"),
        *("../../secret.yaml", "/etc/secret.yaml", "~/secret.yaml", "~nobody-at-all/secret.yaml"),
        *("deep/../../../secret.yaml", "link.yaml", "out/secret.yaml"),
    ],
)
def test_a_file_of_somebody_else_cannot_name_others_of_the_machine(tmp_path, name):
    """Whose text an error would quote."""
    here = tmp_path / "parent" / "here"
    (here / "deep").mkdir(parents=True)
    for file in ("secret.yaml", "parent/secret.txt"):
        (tmp_path / file).write_text("password: hunter2\n")
    (here / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (here / "out").symlink_to(tmp_path)
    said, hint = complaint(folder(here, f"extends: {name}\n"))
    assert "hunter2" not in f"{said}{hint}"
    assert "password" not in f"{said}{hint}"
    assert said.startswith(f"my.yaml:1: extends {name}")
    assert "not an experiment file" in said or "nor beside it" in said or "no experiment" in said


def test_a_file_beside_the_folder_is_extended(tmp_path):
    for name in ("here", "shared"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / "base.yml").write_text(BASE)
    assert extended(tmp_path / "here", "extends: ../shared/base.yml\ntrials: 3\n").trials == 3


def test_extends_is_not_for_the_command_line(tmp_path):
    said, hint = complaint(folder(tmp_path, BASE), "extends=base.yaml")
    assert said == "--set extends=base.yaml: extends can be given in a file alone"
    assert "sweep a file" in hint


def test_errors_of_a_mapping_that_extends_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    with pytest.raises(ExperimentError, match=r"^trials must be at least 1, not 0$"):
        load({"extends": "base.yaml", "trials": 0})
    (tmp_path / "base.yaml").write_text(BASE.replace("keep: 8", "keep: 0"))
    with pytest.raises(ExperimentError, match=r"^base\.yaml:13: keep must be"):
        load({"extends": "base.yaml"})
