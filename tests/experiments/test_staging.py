"""The user's files as Ray's workers get them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.driver.staging import staged
from experiments.errors import ExperimentError
from experiments.plan import WorkloadRef
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
        workload=WorkloadRef(spec="../elsewhere.py:Mine", base=str(base)), optimizer="opt.py:Opt"
    )
    with staged(str(base), [of.workload.spec, of.optimizer], []) as files:
        copy = tmp_path / "worker"
        os.rename(files.folder, copy)
        monkeypatch.chdir(copy)
        there = files.localize(of)
        assert there.workload == WorkloadRef(spec="elsewhere.py:Mine", base=str(copy))
        assert there.optimizer == "opt.py:Opt"
        assert replace(there, workload=of.workload) == of
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ExperimentError, match="did not get the experiment's files"):
            files.localize(of)


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
