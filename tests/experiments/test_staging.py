"""The user's files as Ray's workers get them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.combinations import data_files
from experiments.config.compile import Experiment, from_keywords, load
from experiments.errors import ExperimentError
from experiments.execution import staging
from experiments.execution.staging import staged
from experiments.plan import Study, WorkloadRef
from experiments.records.snapshots import settings_hash
from experiments.training.study_context import StudyContext
from tests.experiments.fakes import study
from workloads import WorkloadError


def names(folder: str) -> set[str]:
    found = {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("batchscale-files-")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "lib" / "__pycache__").mkdir(parents=True)
    (folder / "results").mkdir()
    for name in ("mine.py", "opt.py", "lib/__init__.py", "lib/net.py", "results/__init__.py"):
        (folder / name).write_text(f"# {name}\n")
    (folder / "lib" / "__pycache__" / "net.pyc").write_bytes(b"")
    (folder / "data.bin").write_bytes(b"much")
    (tmp_path / "elsewhere.py").write_text("# elsewhere\n")
    return folder


def test_only_what_is_named_travels(base: Path) -> None:
    specs = ["mine.py:Mine", "opt.py:Opt", "sgd", "digits-mlp"]
    with staged(str(base), specs, ["lib"]) as files:
        assert names(files.folder) == {"mine.py", "opt.py", "lib/__init__.py", "lib/net.py"}
        assert files.specs == {}
        folder = files.folder
    assert not os.path.exists(folder)


def test_files_from_outside_the_folder_come_along(base: Path) -> None:
    with staged(str(base), ["../elsewhere.py:Mine", f"{base}/opt.py:Opt"], []) as files:
        assert names(files.folder) == {"elsewhere.py", "opt.py"}
        assert files.specs == {
            "../elsewhere.py:Mine": "elsewhere.py:Mine",
            f"{base}/opt.py:Opt": "opt.py:Opt",
        }


def test_a_study_is_loaded_from_the_worker_s_copy(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = study(
        workload=WorkloadRef(spec="../elsewhere.py:Mine", base=str(base)),
        optimizer="opt.py:Opt",
        schedule="../wsd.py:WSD",
    )
    (tmp_path / "wsd.py").write_text("")
    with staged(str(base), [str(of.workload.spec), of.optimizer, of.schedule], []) as files:
        copy = tmp_path / "worker"
        os.rename(files.folder, copy)
        monkeypatch.chdir(copy)
        there = files.localize(of)
        assert there.workload == WorkloadRef(spec="elsewhere.py:Mine", base=str(copy))
        assert there.optimizer == "opt.py:Opt"
        assert there.schedule == "wsd.py:WSD"
        assert replace(there, workload=of.workload, schedule=of.schedule) == of
        assert settings_hash(there) == settings_hash(of)  # the driver takes up a worker's snapshot
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ExperimentError, match="did not get the experiment's files"):
            files.localize(of)


def test_what_a_file_imports_of_its_folder_goes_with_it(base: Path, tmp_path: Path) -> None:
    """To the same places beside it, wherever that is; data stays with ``files:``."""
    (base / "mine.py").write_text("import torch, json\nfrom lib import net\n")
    (base / "models").mkdir()
    (base / "models" / "deep.py").write_text("def model():\n    import layers\n")
    (base / "models" / "layers.py").write_text("")
    (tmp_path / "elsewhere.py").write_text("from helpers import rule\n")
    (tmp_path / "helpers.py").write_text("")
    specs = ["mine.py:Mine", "models/deep.py:Deep", "../elsewhere.py:Opt"]
    with staged(str(base), specs, []) as files:
        assert names(files.folder) == {
            "mine.py",
            "lib/__init__.py",
            "lib/net.py",
            "models/deep.py",
            "models/layers.py",
            "elsewhere.py",
            "helpers.py",
        }


def refused(base: Path, specs: list[str], files: list[str], data: list[str]) -> ExperimentError:
    with pytest.raises(ExperimentError) as caught, staged(str(base), specs, files, data):
        pass
    return caught.value


def test_two_modules_of_one_name_that_would_lie_in_one_place(base: Path, tmp_path: Path) -> None:
    for folder, text in ((base, "x = 1\n"), (tmp_path, "x = 2\n")):
        (folder / "helpers.py").write_text(text)
    (base / "mine.py").write_text("import helpers\n")
    (tmp_path / "elsewhere.py").write_text("import helpers\n")
    error = refused(base, ["../elsewhere.py:Opt", "mine.py:Mine"], [], [])
    assert str(error) == (
        "helpers.py, which mine.py imports: two files of the experiment are called helpers.py"
    )
    assert "under the experiment file's folder" in str(error.hint)


@pytest.mark.parametrize(
    ("specs", "files", "data", "message", "hint"),
    [
        *(
            ([], [name], [], f"{name}: on the workers it would hide", f"rename {name}")
            for name in ("results", "torch.py", "random.py", "experiments.py")
        ),
        ([], ["gone.py"], [], "no file 'gone.py'", ""),
        ([], [], ["gone.txt"], "data file gone.txt: no file", ""),
        ([], [], ["data.bin"], "too many to be sent to workers", "absolute path"),
        (["../elsewhere.py:A", "../other/elsewhere.py:B"], [], [], "two files of the experiment "
         "are called elsewhere", ""),
    ],
)  # fmt: skip
def test_what_cannot_travel(
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    specs: list[str],
    files: list[str],
    data: list[str],
    message: str,
    hint: str,
) -> None:
    monkeypatch.setattr(staging, "_LARGEST_DATA_FILE", 3)
    for name in ("torch.py", "random.py", "experiments.py"):
        (base / name).write_text("")
    (base.parent / "other").mkdir()
    (base.parent / "other" / "elsewhere.py").write_text("# another\n")
    error = refused(base, specs, files, data)
    assert message in str(error)
    assert hint in (error.hint or "")


def test_a_large_file_is_read_at_its_absolute_path(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_LARGEST_DATA_FILE", 3)
    with staged(str(base), [], [], [f"{base}/data.bin"]) as files:
        assert not list(Path(files.folder).rglob("*.bin"))


@pytest.mark.parametrize("private", ["../private", "~/private", "link", "lib/../../private"])
def test_files_of_an_experiment_lie_below_its_folder(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    """Somebody else's experiment cannot send a private file to other machines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "private").write_text("secret")
    (base / "link").symlink_to(tmp_path / "private")
    file = base / "x.yaml"
    grid = "grid: {batch_size: 32, optimizer: sgd}"
    text = f"workload: digits-softmax\n{grid}\ntrials: 1\nbudget: 4 steps\n"
    file.write_text(f"{text}files: [data.bin, {private!r}]\n")
    with pytest.raises(ExperimentError) as caught:
        load(file)
    assert str(caught.value) == (
        f"{file}:5: files: {private!r} is not below {base}: it would be copied to other machines"
    )
    assert "command line" in str(caught.value.hint)
    assert load(file, [f"files=[{private!r}]"]).files == (private,)
    assert from_keywords(
        workload="digits-softmax",
        optimizer="sgd",
        batch_size=32,
        trials=1,
        budget="4 steps",
        files=[str(base)],
    ).files == (str(base),)


def test_a_link_that_leads_out_of_a_folder_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("secret")
    (base / "lib" / ".hidden").symlink_to(tmp_path / "private")  # not copied at all
    (base / "lib" / "same.py").symlink_to(base / "lib" / "net.py")
    with staged(str(base), [], ["lib"]) as files:
        assert "lib/same.py" in names(files.folder)
    (base / "lib" / "deep").mkdir()
    (base / "lib" / "deep" / "note.txt").symlink_to(tmp_path / "private")
    assert "note.txt is a link that leads out of" in str(refused(base, [], ["lib"], []))


PROSE = "The quick brown fox jumps over the lazy dog.\n" * 40
EXPERIMENT = """\
workload: lm-transformer
grid: {{batch_size: 4, optimizer: sgd, text: {}, context: 8, layers: 1, width: 8, heads: 2}}
trials: 2
budget: 3 steps
target: validation_cross_entropy < 1
"""


def of_texts(base: Path, texts: str) -> Experiment:
    for name in ("random.txt", "lib/inside.txt"):
        (base / name).write_text(PROSE)
    (base / "my.yaml").write_text(EXPERIMENT.format(texts))
    return load(base / "my.yaml")


def test_a_grid_of_texts_is_sent_whole(base: Path) -> None:
    texts = data_files(
        of_texts(base, "[file:random.txt, stdlib, file:lib/inside.txt]").combinations
    )
    assert texts == ["lib/inside.txt", "random.txt"]
    with staged(str(base), [], ["random.txt"], texts) as files:
        names = {p.relative_to(files.folder).as_posix() for p in Path(files.folder).rglob("*.txt")}
    assert names == {"random.txt", "lib/inside.txt"}


def test_a_worker_with_other_data_does_not_train(base: Path) -> None:
    """Another Python has another standard library; here the file changes."""
    of = of_texts(base, "file:random.txt").studies()[0]
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
    (plan,) = load(tmp_path / "my.yaml").studies()
    assert plan.workload.data_fingerprint is None


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
    (plan,) = experiment.studies()
    return plan, [t.id for t in plan.draw(0, 2)], data_files(experiment.combinations)


@pytest.mark.parametrize("written", ["table.csv", "../elsewhere.csv", "{}/elsewhere.csv"])
def test_a_users_workload_names_files_that_go_to_the_workers(
    table: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    os.symlink(table / "table.csv", tmp_path / "elsewhere.csv")
    of, _, files = of_table(table, written.format(tmp_path))
    assert files == [written.format(tmp_path)]
    expected = StudyContext.load(of).train.fetch(torch.arange(5), training=True)
    with staged(str(table), [str(of.workload.spec)], [], files) as copies:
        worker = tmp_path / "worker"
        os.rename(copies.folder, worker)
        os.rename(table, tmp_path / "gone")
        (tmp_path / "elsewhere.csv").unlink()
        monkeypatch.chdir(worker)
        local = copies.localize(of)
        assert local.workload.fields == of.workload.fields
        assert settings_hash(local) == settings_hash(of)
        batch = StudyContext.load(local).train.fetch(torch.arange(5), training=True)
    assert all(torch.equal(a, b) for a, b in zip(batch, expected, strict=True))


def test_edited_data_are_new_trials(table: Path) -> None:
    before = of_table(table)[1]
    assert of_table(table)[1] == before
    (table / "table.csv").write_text("".join(f"{i},{i},{i % 2}\n" for i in range(32)))
    assert not {*before} & {*of_table(table)[1]}


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
