"""``trial --from`` of a results folder that somebody else has written: the Python files that its
record names are run with ``--trust`` alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchscale as bs
from batchscale.output.errors import CommandError
from tests.batchscale.conftest import Command

TOUCH = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
FILES = {
    "model.py": TOUCH
    + """
import torch
from batchscale import Classification

class Mine(Classification):
    target = "validation_error < 0.001"

    def data(self):
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        return {split: (x, (x[:, 0] > 0).long()) for split in ("train", "validation")}

    def model(self):
        return torch.nn.Linear(4, 2)
""",
    "opt.py": TOUCH + "import torch\nclass Mine(torch.optim.SGD):\n    pass\n",
}
OF_FILE = {"workload": "model.py:Mine", "optimizer": "sgd"}
OF_BOTH = {"workload": "model.py:Mine", "optimizer": "opt.py:Mine"}
OF_OPTIMIZER = {"workload": "digits-softmax", "optimizer": "opt.py:Mine"}
SMALL = {"batch_size": 32, "trials": 1, "budget": "4 steps", "address": "none"}


def recorded(results: str, **names: str) -> str:
    """The id of a trial that was trained with such names; its files have left no trace."""
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
    monkeypatch.delenv("BATCHSCALE_RESULTS", raising=False)


@pytest.mark.parametrize("names", [OF_FILE, OF_OPTIMIZER, OF_BOTH], ids=len)
def test_files_that_a_foreign_record_names_are_not_run(
    command: Command, here: Path, names: dict[str, str]
) -> None:
    trial = recorded("theirs", **names)
    answer = command("trial", "--from", trial, "--results", "theirs")
    assert answer.status == 1
    error, hint = answer.err.splitlines()
    assert f"is not run: the record of trial {trial} in theirs names it" in error
    for name in names.values():
        assert (name in error) == (".py" in name)
    assert str(here) in error
    assert "--trust" in hint
    with pytest.raises(CommandError, match="is not run"):
        bs.rerun(trial, results="theirs")
    assert not list(here.glob("*.ran"))
    assert bs.rerun(trial, results="theirs", trust=True).equal


def test_files_that_the_default_results_name_are_run(command: Command, here: Path) -> None:
    trial = recorded("results/runs", **OF_FILE)
    for results in ([], ["--results", "results/runs"], ["--results", f"{here}/results/runs/"]):
        answer = command("trial", "--from", trial, *results)
        assert (answer.status, answer.err) == (0, "")


def test_a_record_of_packaged_names_needs_no_trust(command: Command) -> None:
    trial = recorded("theirs", workload="digits-softmax", optimizer="sgd")
    assert command("trial", "--from", trial, "--results", "theirs").status == 0


def test_trust_is_for_records_alone(command: Command) -> None:
    answer = command("trial", "digits-mlp", "--batch-size", 8, "--trust")
    assert answer.status == 1
    assert "--trust is for --from" in answer.err
