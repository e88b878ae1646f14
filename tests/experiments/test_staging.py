"""The user's files as Ray's workers get them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.config.compile import from_keywords, load
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.plan import WorkloadRef
from experiments.records.snapshots import settings_hash
from tests.experiments.fakes import study


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
    with staged(str(base), [of.workload.spec, of.optimizer, of.schedule], []) as files:
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


def test_two_modules_of_one_name_that_would_lie_in_one_place(base: Path, tmp_path: Path) -> None:
    for folder, text in ((base, "x = 1\n"), (tmp_path, "x = 2\n")):
        (folder / "helpers.py").write_text(text)
    (base / "mine.py").write_text("import helpers\n")
    (tmp_path / "elsewhere.py").write_text("import helpers\n")
    with (
        pytest.raises(ExperimentError) as caught,
        staged(str(base), ["../elsewhere.py:Opt", "mine.py:Mine"], []),
    ):
        pass
    assert str(caught.value) == (
        "helpers.py, which mine.py imports: two files of the experiment are called helpers.py"
    )
    assert "under the experiment file's folder" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["results", "torch.py", "random.py", "experiments.py"])
def test_a_name_that_would_hide_a_package_is_refused(base: Path, name: str) -> None:
    if name.endswith(".py"):
        (base / name).write_text("")
    with (
        pytest.raises(ExperimentError, match=f"{name}: on the workers it would hide") as caught,
        staged(str(base), [], [name]),
    ):
        pass
    assert f"rename {name}" in (caught.value.hint or "")


def test_a_file_that_is_not_there(base: Path) -> None:
    with (
        pytest.raises(ExperimentError, match=r"no file 'gone\.py'"),
        staged(str(base), [], ["gone.py"]),
    ):
        pass


def test_two_files_of_one_name(base: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "elsewhere.py").write_text("# another\n")
    specs = ["../elsewhere.py:A", "../other/elsewhere.py:B"]
    with (
        pytest.raises(ExperimentError, match=r"two files of the experiment are called elsewhere"),
        staged(str(base), specs, []),
    ):
        pass


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
    with (
        pytest.raises(ExperimentError, match=r"note\.txt is a link that leads out of"),
        staged(str(base), [], ["lib"]),
    ):
        pass
