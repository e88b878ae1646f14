"""Data files of the user's as Ray's workers get them, and data that differ between machines."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.combinations import data_files
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution import staging
from experiments.execution.staging import staged
from experiments.plan import Study
from experiments.records.snapshots import settings_hash
from experiments.training.splits import load_splits
from experiments.training.study_context import StudyContext
from workloads import WorkloadError

PROSE = "The quick brown fox jumps over the lazy dog.\n" * 40
EXPERIMENT = """\
workload: lm-transformer
grid: {{batch_size: 4, optimizer: sgd, text: {}, context: 8, layers: 1, width: 8, heads: 2}}
trials: 2
budget: 3 steps
target: validation_cross_entropy < 1
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "texts").mkdir(parents=True)
    (folder / "texts" / "inside.txt").write_text(PROSE)
    (folder / "random.txt").write_text(PROSE[::-1])
    (tmp_path / "outside.txt").write_text(PROSE.upper())
    return folder


def planned(base: Path, text: str) -> tuple[Study, list[str]]:
    (base / "my.yaml").write_text(EXPERIMENT.format(text))
    experiment = load(base / "my.yaml")
    (plan,) = experiment.plans()
    return plan.study, data_files(experiment.combinations)


@pytest.mark.parametrize("written", ["texts/inside.txt", "../outside.txt", "{}/outside.txt"])
def test_a_text_goes_to_the_workers_by_itself(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    """The file is not listed; on the worker, where its path means nothing, its copy is read."""
    text = "file:" + written.format(tmp_path)
    of, texts = planned(base, text)
    assert texts == [text.removeprefix("file:")]
    expected = load_splits(of.workload, "cpu", torch.float32)[1]["train"].fetch(
        torch.arange(5), training=True
    )
    with staged(str(base), [], [], texts) as files:
        worker = tmp_path / "worker"
        os.rename(files.folder, worker)
        os.rename(base, tmp_path / "gone")
        os.rename(tmp_path / "outside.txt", tmp_path / "gone.txt")
        monkeypatch.chdir(worker)
        local = files.localize(of)
        assert local.workload.fields == of.workload.fields
        assert settings_hash(local) == settings_hash(of)
        context = StudyContext.load(local)
        batch = context.train.fetch(torch.arange(5), training=True)
        for ours, theirs in zip(batch, expected, strict=True):
            assert torch.equal(ours, theirs)


def test_a_grid_of_texts_is_sent_whole(base: Path) -> None:
    (base / "my.yaml").write_text(
        EXPERIMENT.format("['file:random.txt', stdlib, 'file:texts/inside.txt']")
    )
    texts = data_files(load(base / "my.yaml").combinations)
    assert texts == ["random.txt", "texts/inside.txt"]
    with staged(str(base), [], ["random.txt"], texts) as files:
        names = {p.relative_to(files.folder).as_posix() for p in Path(files.folder).rglob("*.txt")}
    assert names == {"random.txt", "texts/inside.txt"}


def test_a_large_text_is_not_sent(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_LARGEST_DATA_FILE", len(PROSE) - 1)
    with (
        pytest.raises(ExperimentError, match="too many to be sent to workers") as caught,
        staged(str(base), [], [], ["random.txt"]),
    ):
        pass
    assert "absolute path" in str(caught.value.hint)
    with staged(str(base), [], [], [f"{base}/random.txt"]) as files:
        assert not list(Path(files.folder).rglob("*.txt"))


def test_an_absent_text(base: Path) -> None:
    with (
        pytest.raises(ExperimentError, match=r"data file gone\.txt: no file"),
        staged(str(base), [], [], ["gone.txt"]),
    ):
        pass


def test_a_worker_with_other_data_does_not_train(base: Path) -> None:
    """Another Python has another standard library; here the file changes."""
    of, _ = planned(base, "file:random.txt")
    fingerprint = of.workload.data_fingerprint
    assert fingerprint is not None
    StudyContext.load(of)
    (base / "random.txt").write_text(PROSE.lower())
    with pytest.raises(ExperimentError) as caught:
        StudyContext.load(of)
    message = str(caught.value)
    assert "\n" not in message
    assert "not those that the sweep was begun with" in message
    assert fingerprint[:8] in message
    assert "the same Python" in str(caught.value.hint)
    uncompared: Any = replace(of, workload=replace(of.workload, data_fingerprint=None))
    StudyContext.load(uncompared)


def test_packaged_data_have_no_fingerprint_to_compare(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(
        "workload: digits-softmax\ngrid: {batch_size: 8, optimizer: sgd}\nbudget: 3 steps\n"
    )
    (plan,) = load(tmp_path / "my.yaml").plans()
    assert plan.study.workload.data_fingerprint is None


OF_A_TABLE = """
import numpy as np
import torch
from batchscale import Classification

class Table(Classification):
    target = "validation_error < 0.1"
    path: str = "table.csv"

    def data_files(self):
        return [self.path]

    def data(self):
        table = torch.from_numpy(np.loadtxt(self.local_file(self.path), delimiter=","))
        x, y = table[:, :-1].float(), table[:, -1].long()
        return {"train": (x, y), "validation": (x[:8], y[:8])}

    def model(self):
        return torch.nn.Linear(2, 2)
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.py").write_text(OF_A_TABLE)
    (folder / "table.csv").write_text("".join(f"{i},{-i},{i % 2}\n" for i in range(32)))
    return folder


def of_table(folder: Path, path: str = "table.csv") -> tuple[Study, list[str], list[str]]:
    """The study, its trials and the data files of the experiment."""
    (folder / "my.yaml").write_text(
        f"workload: mine.py:Table\ngrid: {{batch_size: 8, optimizer: sgd, path: {path}}}\n"
        "trials: 2\nbudget: 3 steps\n"
    )
    experiment = load(folder / "my.yaml")
    (plan,) = experiment.plans()
    return plan.study, [t.id for t in plan.trials(0, 2)], data_files(experiment.combinations)


@pytest.mark.parametrize("written", ["table.csv", "../elsewhere.csv", "{}/elsewhere.csv"])
def test_a_users_workload_names_files_that_go_to_the_workers(
    table: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    os.symlink(table / "table.csv", tmp_path / "elsewhere.csv")
    of, _, files = of_table(table, written.format(tmp_path))
    assert files == [written.format(tmp_path)]
    expected = StudyContext.load(of).train.fetch(torch.arange(5), training=True)
    with staged(str(table), [of.workload.spec], [], files) as copies:
        worker = tmp_path / "worker"
        os.rename(copies.folder, worker)
        os.rename(table, tmp_path / "gone")
        (tmp_path / "elsewhere.csv").unlink()
        monkeypatch.chdir(worker)
        local = copies.localize(of)
        assert local.workload.fields == of.workload.fields
        batch = StudyContext.load(local).train.fetch(torch.arange(5), training=True)
    assert all(torch.equal(a, b) for a, b in zip(batch, expected, strict=True))


def test_edited_data_are_new_trials_and_other_data_are_refused(table: Path) -> None:
    of, before, _ = of_table(table)
    assert of_table(table)[1] == before
    (table / "table.csv").write_text("".join(f"{i},{i},{i % 2}\n" for i in range(32)))
    assert not {*before} & {*of_table(table)[1]}
    with pytest.raises(ExperimentError, match="not those that the sweep was begun with"):
        StudyContext.load(of)


@pytest.mark.parametrize(
    ("path", "returned", "message", "hint"),
    [
        ("gone.csv", "[self.path]", "data file gone.csv: no file /", "relative to the experiment"),
        (".", "[self.path]", "data file .: not a file but a folder: /", "relative to the"),
        ("table.csv", "self.path", "data_files returned 'table.csv', and not a list", "['table"),
        ("table.csv", "[]", "'table.csv' is not among the data_files of workload Table", "workers"),
    ],
)
def test_data_files_that_cannot_be(
    table: Path, path: str, returned: str, message: str, hint: str
) -> None:
    text = OF_A_TABLE.replace("return [self.path]", f"return {returned}")
    (table / "mine.py").write_text(text)
    with pytest.raises(WorkloadError, match=re.escape(message)) as caught:
        of_table(table, path)
    assert "\n" not in str(caught.value)
    assert hint in str(caught.value.hint)
