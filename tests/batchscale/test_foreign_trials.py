"""``trial --from`` runs the Python files that a record names if this user has run them before, and
otherwise with ``--trust`` alone, whatever the results folder is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import batchscale as bs
from analysis.figure_data import FigureData, Query
from batchscale.output.errors import CommandError
from batchscale.planning import devices as planning
from tests.batchscale.conftest import Command
from tests.user_models import LINEAR, TOUCH

FILES = {
    "model.py": TOUCH + LINEAR,
    "opt.py": TOUCH + "import torch\nclass Mine(torch.optim.SGD):\n    pass\n",
}
OF_FILE = {"workload": "model.py:Mine", "optimizer": "sgd"}
OF_BOTH = {"workload": "model.py:Mine", "optimizer": "opt.py:Mine"}
OF_OPTIMIZER = {"workload": "digits-softmax", "optimizer": "opt.py:Mine"}
NOT_BEFORE = "and you have not run a file of this content before"
SMALL = {"batch_size": 32, "trials": 1, "budget": "4 steps", "address": "none"}


def recorded(results: str, **names: str) -> str:
    """The id of a trial that this user has trained with such names; its files have left no
    trace."""
    run = bs.sweep(**names, **SMALL, learning_rate=0.1, results=results)  # type: ignore[arg-type]
    for trace in Path().glob("*.ran"):
        trace.unlink()
    return str(run.trials["trial"].iloc[0])


@pytest.fixture(autouse=True)
def written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (here / name).write_text(text)
    # A file is imported once for each content, and leaves its trace then.
    monkeypatch.setattr("workloads.user_code.user_files._folders", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))


@pytest.fixture
def somebody_else(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, the user is another one, who has run nothing yet."""

    def change() -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(Path("another-state").absolute()))
        monkeypatch.setattr("workloads.user_code.user_files._folders", {})

    return change


def refused(command: Command, trial: str, results: str, reason: str) -> str:
    """The error of a trial none of whose files is run."""
    answer = command("trial", "--from", trial, "--results", results)
    assert answer.status == 1
    error, hint = answer.err.splitlines()
    assert f" is not run: the record of trial {trial} in {results} names it" in error
    assert error.endswith(reason)
    assert "--trust" in hint
    assert not list(Path().rglob("*.ran"))
    return error


@pytest.mark.parametrize("names", [OF_FILE, OF_OPTIMIZER, OF_BOTH], ids=len)
@pytest.mark.parametrize("results", ["theirs", "results/runs"])
def test_files_that_a_foreign_record_names_are_not_run(
    command: Command,
    here: Path,
    somebody_else: Callable[[], None],
    results: str,
    names: dict[str, str],
) -> None:
    """Neither is a cloned repository's, whose files are all the user's own."""
    trial = recorded(results, **names)
    somebody_else()
    error = refused(command, trial, results, NOT_BEFORE)
    for name in names.values():
        assert (name in error) == (".py" in name)
    assert str(here) in error
    with pytest.raises(CommandError, match="is not run"):
        bs.rerun(trial, results=results)
    assert not list(here.glob("*.ran"))
    assert bs.rerun(trial, results=results, trust=True).equal
    assert bs.rerun(trial, results=results).equal  # it has been run by now


@pytest.mark.parametrize("names", [OF_FILE, OF_OPTIMIZER], ids=str)
def test_a_step_that_a_foreign_record_names_is_not_measured(
    somebody_else: Callable[[], None], names: dict[str, str]
) -> None:
    recorded("theirs", **names)
    somebody_else()
    data = FigureData(Query(sources=["theirs"]))
    (curve,) = data.curves
    given = (curve, curve.points[0], data)
    with pytest.raises(CommandError, match="is not run: the record of trial"):
        planning._subject(*given, False, "cpu", {})
    assert not list(Path().rglob("*.ran"))
    assert planning._subject(*given, True, "cpu", {}).record is None


@pytest.mark.parametrize("results", ["runs", "results/runs"])
def test_ones_own_files_are_run(command: Command, here: Path, results: str) -> None:
    trial = recorded(results, **OF_BOTH)
    for name in (results, f"{here}/{results}/"):
        answer = command("trial", "--from", trial, "--results", name)
        assert (answer.status, answer.err) == (0, "")


@pytest.mark.parametrize("edited", ["model.py", "layers.py"])
def test_a_file_that_has_changed_since_is_not_run(
    command: Command, here: Path, edited: str
) -> None:
    """With the modules beside it that it imports."""
    (here / "layers.py").write_text("width = 2\n")
    (here / "model.py").write_text("import layers\n" + FILES["model.py"])
    trial = recorded("results/runs", **OF_FILE)
    with (here / edited).open("a") as file:
        file.write("x = 1\n")
    refused(command, trial, "results/runs", NOT_BEFORE)


def test_a_file_in_the_results_folder_is_not_run(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write results may have put it there."""
    trial = recorded("results/runs", **OF_FILE)
    monkeypatch.chdir(here / "results/runs")
    Path("model.py").write_text(FILES["model.py"])
    refused(command, trial, str(here / "results/runs"), "and it lies in the results folder")


def test_a_file_of_another_user_is_not_run(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = recorded("results/runs", **OF_FILE)
    monkeypatch.setattr("os.getuid", lambda: 1 + Path("model.py").stat().st_uid)
    refused(command, trial, "results/runs", "and it belongs to another user")


def test_a_module_that_no_statement_names_is_not_run(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the file that imports it is trusted."""
    (here / "layers.py").write_text(TOUCH)
    (here / "model.py").write_text(
        "import importlib\nimportlib.import_module('lay' + 'ers')\n" + LINEAR
    )
    trial = recorded("results/runs", **OF_FILE)
    (here / "layers.py").write_text(f"{TOUCH}\nx = 1\n")
    for name in [name for name in sys.modules if name.startswith("batchscale_files_")]:
        monkeypatch.delitem(sys.modules, name)  # as in a new process
    monkeypatch.setattr("workloads.user_code.user_files._folders", {})
    refused(command, trial, "results/runs", NOT_BEFORE)


def test_a_record_of_packaged_names_needs_no_trust(command: Command) -> None:
    trial = recorded("theirs", workload="digits-softmax", optimizer="sgd")
    assert command("trial", "--from", trial, "--results", "theirs").status == 0


def test_trust_is_for_records_alone(command: Command) -> None:
    answer = command("trial", "digits-mlp", "--batch-size", 8, "--trust")
    assert answer.status == 1
    assert "--trust is for --from" in answer.err
